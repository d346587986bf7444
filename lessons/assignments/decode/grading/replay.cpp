#include "lessons/assignments/decode/grading/replay.hpp"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "src/inference/batcher.hpp"

namespace lockstep::lessons::decode {

std::optional<std::vector<Planned>> read_log(const HostTensor& log) {
    if (log.dtype() != DType::i32 || log.shape().dimensions() != 1) return std::nullopt;
    const auto numbers = log.values<std::int32_t>();
    constexpr std::size_t kFields = 5;
    std::vector<Planned> plan;
    for (std::size_t i = 0; i < numbers.size();) {
        if (numbers.size() - i < kFields) return std::nullopt;
        Planned& share = plan.emplace_back();
        share = {numbers[i], numbers[i + 1], numbers[i + 2], numbers[i + 3], {}};
        const std::int32_t pages = numbers[i + 4];
        i += kFields;
        if (pages < 0 || numbers.size() - i < static_cast<std::size_t>(pages))
            return std::nullopt;
        share.pages.assign(numbers.begin() + static_cast<std::ptrdiff_t>(i),
                           numbers.begin() + static_cast<std::ptrdiff_t>(i) + pages);
        i += static_cast<std::size_t>(pages);
        if (share.pass < 0 || (plan.size() > 1 && plan.end()[-2].pass > share.pass))
            return std::nullopt;
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

    bool is_done() const { return known == end; }
    bool decodes() const { return known > prompt && known - computed == 1; }
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
    Replay(const BatchingCase& of, const std::vector<Planned>& plan)
        : of_(of), plan_(plan), ends_(plan.size(), true) {
        for (const Arrival& arrival : of.requests)
            requests_.push_back({arrival.prompt, arrival.prompt + arrival.output,
                                 arrival.prompt, arrival.pass});
        // A request that begins again has been sent back after its last rows before.
        std::map<std::int64_t, std::size_t> last;
        for (std::size_t i = 0; i < plan.size(); ++i) {
            const auto [before, is_first] = last.try_emplace(plan[i].request, i);
            if (is_first) continue;
            ends_[before->second] = plan[i].first == 0;
            before->second = i;
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
        for (std::size_t i = begin; i < end; ++i)
            if (verdict_.tokens.empty()) enter(plan_[i]);
        if (!verdict_.tokens.empty()) return;
        judge_limits(begin, end);
        judge_order();
        for (std::size_t i = begin; i < end; ++i)
            if (verdict_.tokens.empty()) look_up(plan_[i]);
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
        if (problem.empty()) problem = problem_of_tokens(share);
        if (problem.empty()) problem = problem_of_pages(share);
        if (!problem.empty()) return wrong(verdict_.tokens, problem);
        Progress& it = progress(share.request);
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
        if (share.pass < progress(number).arrival)
            return fmt::format("request {} has not come yet", number);
        if (!in_pass_.insert(number).second)
            return fmt::format("request {} is there twice", number);
        if (progress(number).is_done())
            return fmt::format("request {} has rows, and has all of its tokens", number);
        return "";
    }

    std::string problem_of_tokens(const Planned& share) {
        const auto& [pass, number, first, count, pages] = share;
        Progress& it = progress(number);
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
        return "";
    }

    std::string problem_of_pages(const Planned& share) const {
        const std::int64_t tokens = share.first + share.count;
        if (std::ssize(share.pages) * of_.rules.page_rows < tokens)
            return fmt::format("request {} has {} tokens by then, on {} pages of {}",
                               share.request, tokens, share.pages.size(),
                               of_.rules.page_rows);
        for (const std::int32_t page : share.pages)
            if (page < 0 || page >= of_.rules.pages)
                return fmt::format("request {} has page {}, and there are {}",
                                   share.request, page, of_.rules.pages);
        return "";
    }

    Progress& progress(std::int64_t number) {
        return requests_[static_cast<std::size_t>(number)];
    }
    const Progress& progress(std::int64_t number) const {
        return requests_[static_cast<std::size_t>(number)];
    }

    std::int64_t place(const Planned& share, std::int64_t token) const {
        const std::int64_t rows = of_.rules.page_rows;
        return share.pages[static_cast<std::size_t>(token / rows)] * rows + token % rows;
    }

    void judge_limits(std::size_t begin, std::size_t end) {
        std::int64_t rows = 0;
        for (std::size_t i = begin; i < end; ++i)
            rows += plan_[i].count;
        const std::int64_t running =
            std::ranges::count_if(requests_, &Progress::under_way);
        if (rows > of_.rules.rows)
            wrong(verdict_.limits,
                  fmt::format("it has {} rows, and {} are the most; do the rows of "
                              "decodes count, too?",
                              rows, of_.rules.rows));
        if (running > of_.rules.sequences)
            wrong(verdict_.limits,
                  fmt::format("{} requests are under way, and {} are the most", running,
                              of_.rules.sequences));
    }

    void judge_order() {
        judge_beginnings();
        for (std::int64_t number = 0; number < std::ssize(requests_); ++number) {
            const Progress& it = progress(number);
            if (it.under_way && it.decodes() && !in_pass_.contains(number))
                return wrong(verdict_.order,
                             fmt::format("request {} lacks one row to its next token, "
                                         "and has none; decodes go before prompts",
                                         number));
        }
        for (std::int64_t number = 0; number < youngest_prompt_; ++number) {
            const Progress& it = progress(number);
            if (it.under_way && !it.decodes() && it.computed < it.known)
                return wrong(verdict_.order,
                             fmt::format("request {} still lacks rows of its prompt, and "
                                         "request {}, which has come after it, has some",
                                         number, youngest_prompt_));
        }
        for (const std::int64_t number : gone_)
            if (is_younger_under_way(number))
                return wrong(
                    verdict_.order,
                    fmt::format("request {} is sent back, and a younger one goes "
                                "on",
                                number));
    }

    void judge_beginnings() {
        for (const std::int64_t number : begin_again_)
            for (std::int64_t other = 0; other < number; ++other)
                if (waits(other))
                    return wrong(
                        verdict_.order,
                        fmt::format("request {} begins, while request {} waits, which "
                                    "has come before it{}",
                                    number, other,
                                    was_sent_back_.contains(other)
                                        ? "; one that was sent back waits first of all"
                                        : ""));
    }

    bool waits(std::int64_t number) const {
        const Progress& it = progress(number);
        return it.arrival <= pass_ && !it.under_way && !it.is_done();
    }
    bool is_younger_under_way(std::int64_t number) const {
        for (std::int64_t other = number + 1; other < std::ssize(requests_); ++other)
            if (progress(other).under_way && !begin_again_.contains(other)) return true;
        return false;
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
                                     share.request, token, where % of_.rules.page_rows,
                                     where / of_.rules.page_rows, there));
        }
    }

    /// The pass has been computed.
    void leave(std::size_t i) {
        Progress& it = progress(plan_[i].request);
        if (it.computed == it.known) ++it.known;
        if (!ends_[i]) return;
        it.under_way = false;
        if (it.is_done()) return;
        was_sent_back_.insert(plan_[i].request);
        // It would have a row in the next pass. One that has not, since a prompt takes
        // several passes, may be sent back later.
        if (it.decodes()) gone_.push_back(plan_[i].request);
    }

    void judge_end() {
        for (std::size_t i = 0; i < requests_.size(); ++i) {
            const Progress& it = requests_[i];
            if (it.is_done()) continue;
            verdict_.unfinished = true;
            verdict_.tokens = fmt::format(
                "request {} has {} of its {} tokens after {} passes, {}", i,
                it.known - it.prompt, it.end - it.prompt, of_.passes,
                verdict_.passes == 0 ? "and nothing has been planned"
                : verdict_.passes < of_.passes
                    ? fmt::format("and nothing has been planned from pass {} on; do "
                                  "pages come back?",
                                  verdict_.passes)
                    : "which are more than enough; is one who was sent back sent back "
                      "again and again?");
            return;
        }
    }

    const BatchingCase& of_;
    const std::vector<Planned>& plan_;
    std::vector<bool> ends_;  ///< its request is not under way after that share
    std::vector<Progress> requests_;
    std::map<std::int64_t, Stored> stored_;  ///< by row among those of all pages
    std::int64_t pass_ = 0;
    std::set<std::int64_t> in_pass_;
    std::set<std::int64_t> begin_again_;  ///< that were not under way before the pass
    std::int64_t youngest_prompt_ = -1;   ///< that has rows in the pass; -1: none
    std::set<std::int64_t> was_sent_back_;
    std::vector<std::int64_t> gone_;  ///< in the pass that comes next
    Verdict verdict_;
};

}  // namespace

Verdict replayed(const BatchingCase& of, const std::vector<Planned>& plan) {
    return Replay(of, plan).judge();
}

LibraryRun run_library(const BatchingCase& of) {
    const auto& [rows, sequences, pages, page_rows] = of.rules;
    PagePool pool(pages, page_rows, /*reuse=*/false);
    Batcher batcher(pool, {.most_sequences = sequences, .most_rows = rows});
    LibraryRun run;
    std::size_t added = 0;
    for (std::int64_t pass = 0; added < of.requests.size() || !batcher.idle(); ++pass) {
        for (; added < of.requests.size() && of.requests[added].pass <= pass; ++added) {
            lockstep::Request request;
            request.id = static_cast<std::int64_t>(added);
            request.prompt.resize(static_cast<std::size_t>(of.requests[added].prompt));
            request.output = of.requests[added].output;
            batcher.add(std::move(request));
        }
        if (batcher.next().tokens.rows() > 0) run.passes = pass + 1;
        batcher.take(std::vector<std::int32_t>(batcher.wanted().size()));
    }
    for (const Answer& answer : batcher.answers())
        run.preemptions += answer.preemptions;
    return run;
}

}  // namespace lockstep::lessons::decode
