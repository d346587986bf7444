#include "lessons/assignments/decode/grading/replay.hpp"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

namespace lockstep::lessons::decode {

std::optional<Plan> read_plan(const HostTensor& left) {
    if (left.dtype() != DType::i32 || left.shape().dimensions() != 1) return {};
    const auto numbers = left.values<std::int32_t>();
    constexpr std::ptrdiff_t kFields = 5;
    if (numbers.empty()) return {};
    Plan plan{{}, numbers[0]};
    std::int64_t pass = 0;
    for (auto at = numbers.begin() + 1; at != numbers.end();) {
        if (numbers.end() - at < kFields) return {};
        Planned share{at[0], at[1], at[2], at[3]};
        const std::int32_t pages = at[4];
        at += kFields;
        if (share.pass < pass || pages < 0 || numbers.end() - at < pages) return {};
        pass = share.pass;
        share.pages.assign(at, at + pages);
        at += pages;
        plan.shares.push_back(std::move(share));
    }
    return plan;
}

namespace {

/// Says how far a request has come.
struct Progress {
    std::int64_t known = 0;  ///< tokens of the prompt, and those that followed
    std::int64_t end = 0;    ///< tokens in the end
    std::int64_t prompt = 0;
    std::int64_t arrival = 0;
    std::int64_t computed = 0;  ///< since it has begun, or begun again
    bool under_way = false;
    bool was_sent_back = false;

    bool is_done() const { return known == end; }
    bool decodes() const { return known > prompt && known - computed == 1; }
    bool lacks_row() const { return under_way && decodes(); }
    bool lacks_prompt() const { return under_way && !decodes() && computed < known; }
};

/// A row of a page holds this.
struct Stored {
    std::int64_t request = 0;
    std::int64_t token = 0;
    std::int64_t pass = 0;
};

/// "token 3" or "tokens 3 to 5".
std::string tokens_text(std::int64_t first, std::int64_t count) {
    if (count == 1) return fmt::format("token {}", first);
    return fmt::format("tokens {} to {}", first, first + count - 1);
}

class Replay {
  public:
    Replay(const Case& drawn, const std::vector<Planned>& plan)
        : rules_(drawn.rules), passes_(drawn.passes), plan_(plan), ends_(plan.size()) {
        for (const auto& [prompt, output, arrival] : drawn.prompts)
            requests_.push_back({prompt, prompt + output, prompt, arrival});
        // A request that begins again has been sent back after its last rows before.
        std::map<std::int64_t, std::int64_t> next_first;
        for (std::size_t i = plan.size(); i-- > 0;) {
            std::int64_t& first = next_first[plan[i].request];
            ends_[i] = first == 0;
            first = plan[i].first;
        }
    }

    Verdict judge() {
        if (!plan_.empty()) verdict_.passes = plan_.back().pass + 1;
        for (std::size_t i = 0; i < plan_.size() && verdict_.tokens.empty();) {
            std::size_t end = i;
            while (end < plan_.size() && plan_[end].pass == plan_[i].pass)
                ++end;
            judge_pass(i, end);
            i = end;
        }
        if (verdict_.tokens.empty()) judge_end();
        return verdict_;
    }

  private:
    void judge_pass(std::size_t begin, std::size_t end) {
        pass_ = plan_[begin].pass;
        in_pass_.clear();
        begin_again_.clear();
        youngest_prompt_ = -1;
        std::int64_t rows = 0;
        for (std::size_t i = begin; i < end && verdict_.tokens.empty(); ++i) {
            enter(plan_[i]);
            rows += plan_[i].count;
        }
        if (!verdict_.tokens.empty()) return;
        judge_limits(rows);
        judge_order();
        for (std::size_t i = begin; i < end && verdict_.tokens.empty(); ++i)
            look_up(plan_[i]);
        gone_.clear();
        for (std::size_t i = begin; i < end; ++i)
            leave(i);
    }

    void wrong(std::string& entry, const std::string& sentence) const {
        if (entry.empty()) entry = fmt::format("pass {}: {}", pass_, sentence);
    }

    /// Stores the rows of a share, if they can be computed.
    void enter(const Planned& share) {
        std::string problem = problem_of_request(share);
        if (problem.empty()) problem = problem_of_rows(share);
        if (!problem.empty()) return wrong(verdict_.tokens, problem);
        Progress& it = requests_.at(share.request);
        if (!it.under_way) begin_again_.insert(share.request);
        if (!it.decodes()) youngest_prompt_ = std::max(youngest_prompt_, share.request);
        it.under_way = true;
        it.computed = share.first + share.count;
        for (std::int64_t token = share.first; token < it.computed; ++token)
            stored_[place(share, token)] = {share.request, token, share.pass};
    }

    std::string problem_of_request(const Planned& share) {
        const std::int64_t number = share.request;
        if (number < 0 || number >= std::ssize(requests_))
            return fmt::format("there is no request {}", number);
        if (share.pass < requests_.at(number).arrival)
            return fmt::format("request {} has not come yet", number);
        if (!in_pass_.insert(number).second)
            return fmt::format("request {} is there twice", number);
        if (requests_.at(number).is_done())
            return fmt::format("request {} has rows, and has all of its tokens", number);
        return "";
    }

    std::string problem_of_rows(const Planned& share) {
        const auto& [pass, number, first, count, pages] = share;
        Progress& it = requests_.at(number);
        if (first == 0 && !it.under_way) it.computed = 0;
        if (count < 1 || first != it.computed)
            return fmt::format(
                "it has {} of request {}, of whose tokens {} have been computed{}",
                count < 1 ? fmt::format("{} rows", count) : tokens_text(first, count),
                number, it.computed,
                it.computed == 0 ? ", since it begins, or begins again" : "");
        if (count > it.known - first)
            return fmt::format("it has {} of request {}, which has {} tokens by then",
                               tokens_text(first, count), number, it.known);
        if (std::ssize(pages) * rules_.page_rows < first + count)
            return fmt::format("request {} has {} tokens by then, on {} pages of {}",
                               number, first + count, pages.size(), rules_.page_rows);
        for (const std::int32_t page : pages)
            if (page < 0 || page >= rules_.pages)
                return fmt::format("request {} has page {}, and there are {}", number,
                                   page, rules_.pages);
        return "";
    }

    std::int64_t place(const Planned& share, std::int64_t token) const {
        const std::int64_t rows = rules_.page_rows;
        return share.pages.at(token / rows) * rows + token % rows;
    }

    void judge_limits(std::int64_t rows) {
        const auto running = std::ranges::count_if(requests_, &Progress::under_way);
        if (rows > rules_.rows)
            wrong(verdict_.limits,
                  fmt::format("it has {} rows, and {} are the most; do the rows of "
                              "decodes count, too?",
                              rows, rules_.rows));
        if (running > rules_.sequences)
            wrong(verdict_.limits,
                  fmt::format("{} requests are under way, and {} are the most", running,
                              rules_.sequences));
    }

    void judge_order() {
        for (const std::int64_t number : begin_again_)
            for (std::int64_t other = 0; other < number; ++other)
                if (waits(requests_.at(other)))
                    wrong(verdict_.order,
                          fmt::format("request {} begins, while request {} waits, which "
                                      "has come before it{}",
                                      number, other,
                                      requests_.at(other).was_sent_back
                                          ? "; one that was sent back waits first of all"
                                          : ""));
        judge_rows();
        for (const std::int64_t number : gone_)
            for (std::int64_t other = number + 1; other < std::ssize(requests_); ++other)
                if (requests_.at(other).under_way && !begin_again_.contains(other))
                    wrong(
                        verdict_.order,
                        fmt::format("request {} is sent back, and a younger one goes on",
                                    number));
    }

    /// Requests that lack rows have them in their order, decodes before prompts.
    void judge_rows() {
        for (std::int64_t number = 0; number < std::ssize(requests_); ++number)
            if (requests_.at(number).lacks_row() && !in_pass_.contains(number))
                wrong(verdict_.order,
                      fmt::format("request {} lacks one row to its next token, and has "
                                  "none; decodes go before prompts",
                                  number));
        for (std::int64_t number = 0; number < youngest_prompt_; ++number)
            if (requests_.at(number).lacks_prompt())
                wrong(verdict_.order,
                      fmt::format("request {} still lacks rows of its prompt, and "
                                  "request {}, which has come after it, has some",
                                  number, youngest_prompt_));
    }

    bool waits(const Progress& it) const {
        return it.arrival <= pass_ && !it.under_way && !it.is_done();
    }

    /// Each row finds the tokens of its request in their places.
    void look_up(const Planned& share) {
        for (std::int64_t token = 0; token < share.first + share.count; ++token) {
            const std::int64_t where = place(share, token);
            const auto found = stored_.find(where);
            if (found != stored_.end() && found->second.request == share.request &&
                found->second.token == token)
                continue;
            const std::string there =
                found == stored_.end()
                    ? "nothing has been stored"
                    : fmt::format("token {} of request {} was stored in pass {}",
                                  found->second.token, found->second.request,
                                  found->second.pass);
            return wrong(verdict_.tokens,
                         fmt::format("request {} looks for the keys of its token {} in "
                                     "row {} of page {}, where {}",
                                     share.request, token, where % rules_.page_rows,
                                     where / rules_.page_rows, there));
        }
    }

    /// The pass has been computed.
    void leave(std::size_t i) {
        Progress& it = requests_.at(plan_[i].request);
        if (it.computed == it.known) ++it.known;
        if (!ends_[i]) return;
        it.under_way = false;
        if (it.is_done()) return;
        it.was_sent_back = true;
        ++verdict_.sent_back;
        // It would have a row in the next pass. One that has not, since a prompt takes
        // several passes, may be sent back later.
        if (it.decodes()) gone_.push_back(plan_[i].request);
    }

    void judge_end() {
        const auto lacks = std::ranges::find(requests_, false, &Progress::is_done);
        if (lacks == requests_.end()) return;
        verdict_.unfinished = true;
        verdict_.tokens = fmt::format(
            "request {} has {} of its {} tokens after {} passes, {}",
            lacks - requests_.begin(), lacks->known - lacks->prompt,
            lacks->end - lacks->prompt, passes_,
            verdict_.passes == 0 ? "and nothing has been planned"
            : verdict_.passes < passes_
                ? fmt::format("and nothing has been planned from pass {} on; do pages "
                              "come back?",
                              verdict_.passes)
                : "which are more than enough; is one who was sent back sent back again "
                  "and again?");
    }

    const Rules& rules_;
    const std::int64_t passes_;
    const std::vector<Planned>& plan_;
    std::vector<bool> ends_;  ///< its request is not under way after that share
    std::vector<Progress> requests_;
    std::map<std::int64_t, Stored> stored_;  ///< by row among those of all pages
    std::int64_t pass_ = 0;
    std::set<std::int64_t> in_pass_;
    std::set<std::int64_t> begin_again_;  ///< that were not under way before the pass
    std::int64_t youngest_prompt_ = -1;   ///< that has rows in the pass; -1: none
    std::vector<std::int64_t> gone_;      ///< in the pass that comes next
    Verdict verdict_;
};

}  // namespace

Verdict replayed(const Case& drawn, const std::vector<Planned>& plan) {
    return Replay(drawn, plan).judge();
}

}  // namespace lockstep::lessons::decode
