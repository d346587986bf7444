#include "lessons/assignments/decode/grading/replay.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

namespace lockstep::lessons::decode {

std::optional<Plan> read_plan(const HostTensor& left, const Rules& rules,
                              std::int64_t passes) {
    const Shape& shape = left.shape();
    const std::int64_t columns = 4 + rules.pages;
    if (left.dtype() != DType::i32 || shape.dimensions() != 2 || shape[1] != columns)
        return {};
    Plan plan(static_cast<std::size_t>(passes));
    const auto numbers = left.values<std::int32_t>();
    for (auto row = numbers.begin(); row != numbers.end(); row += columns) {
        if (row[0] < 0 || row[0] >= passes) return {};
        const auto pages_end = std::find(row + 4, row + columns, -1);
        plan.at(row[0]).push_back({row[1], {row[2], row[3], {row + 4, pages_end}}});
    }
    return plan;
}

namespace {

/// The progress of a request.
struct Progress {
    Asked asked;
    std::int64_t known = asked.prompt;  ///< tokens of the prompt, and generated tokens
    std::int64_t computed = 0;  ///< tokens computed since it began, or began again
    bool under_way = false;
    bool was_sent_back = false;
    std::int64_t last_pass = -1;  ///< the last pass with rows of the request
    std::int64_t lost_pass = -1;  ///< the pass in which it was sent back, if known

    /// The number of tokens to compute: all except the last generated token.
    std::int64_t end() const { return asked.prompt + asked.output - 1; }
    bool is_done() const { return computed == end(); }
    bool lacks_rows() const { return computed < known; }
    bool decodes() const { return known > asked.prompt && known - computed == 1; }
};

/// The token in a row of a page, and the pass that stored it.
struct Stored {
    std::int64_t request = 0;
    std::int64_t token = 0;
    std::int64_t pass = 0;
};

class Replay {
  public:
    Replay(const Batch& batch, const Plan& plan) : rules_(batch.rules), plan_(plan) {
        for (const Asked& asked : batch.requests)
            requests_.push_back({asked});
    }

    Verdict judge() {
        for (; pass_ < std::ssize(plan_) && verdict_.tokens.empty(); ++pass_)
            judge_pass(plan_.at(pass_));
        const auto lacks = std::ranges::find(requests_, false, &Progress::is_done);
        if (verdict_.tokens.empty() && lacks != requests_.end())
            verdict_.tokens = fmt::format(
                "request {} has {} of its {} tokens after {} passes; its last row was in "
                "pass {}. Are all pages freed? Is the request sent back again and again?",
                lacks - requests_.begin(), lacks->known - lacks->asked.prompt,
                lacks->asked.output, pass_, lacks->last_pass);
        return verdict_;
    }

  private:
    void judge_pass(const std::vector<Share>& shares) {
        if (!shares.empty()) verdict_.last_pass = pass_;
        std::vector<Share> prompts;
        for (const Share& share : shares) {
            const std::string problem = problem_of(share);
            if (!problem.empty()) return wrong(verdict_.tokens, problem);
            if (!requests_.at(share.request).decodes()) prompts.push_back(share);
            enter(share);
        }
        judge_limits(shares);
        for (std::int64_t number = 0; number < std::ssize(requests_); ++number)
            if (requests_.at(number).lacks_rows()) judge_turn(number, shares, prompts);
        for (const Share& share : shares)
            look_up(share);
        for (const Share& share : shares)
            leave(share.request);
    }

    void wrong(std::string& entry, const std::string& sentence) const {
        if (entry.empty()) entry = fmt::format("pass {}: {}", pass_, sentence);
    }

    /// Returns why the rows of a share cannot be computed, or nothing if they can.
    std::string problem_of(const Share& share) const {
        const auto& [number, tokens] = share;
        if (number < 0 || number >= std::ssize(requests_))
            return fmt::format("there is no request {}", number);
        const Progress& progress = requests_.at(number);
        if (progress.asked.arrival > pass_)
            return fmt::format("request {} has not come yet", number);
        if (progress.last_pass == pass_)
            return fmt::format("request {} is there twice", number);
        if (progress.is_done())
            return fmt::format("request {} has rows, but has all of its tokens", number);
        if (tokens.count < 1 || tokens.first != progress.computed ||
            tokens.tokens() > progress.known)
            return fmt::format(
                "request {} has {} rows, the first for its token {}; before this pass it "
                "has {} tokens, of which {} have been computed since it last began",
                number, tokens.count, tokens.first, progress.known, progress.computed);
        if (std::ssize(tokens.pages) * rules_.page_rows < tokens.tokens())
            return fmt::format(
                "request {} has {} tokens after this pass, but {} pages of {}", number,
                tokens.tokens(), tokens.pages.size(), rules_.page_rows);
        for (const std::int32_t page : tokens.pages)
            if (page < 0 || page >= rules_.pages)
                return fmt::format("request {} has page {}, and there are {}", number,
                                   page, rules_.pages);
        return "";
    }

    /// Stores the rows of a share.
    void enter(const Share& share) {
        Progress& progress = requests_.at(share.request);
        progress.under_way = true;
        progress.last_pass = pass_;
        for (; progress.computed < share.tokens.tokens(); ++progress.computed)
            stored_[place(share, progress.computed)] = {share.request, progress.computed,
                                                        pass_};
    }

    /// Returns the place of a token's keys: a page, and a row of the page.
    std::pair<std::int64_t, std::int64_t> place(const Share& share,
                                                std::int64_t token) const {
        return {share.tokens.pages.at(token / rules_.page_rows),
                token % rules_.page_rows};
    }

    void judge_limits(const std::vector<Share>& shares) {
        std::int64_t rows = 0;
        for (const Share& share : shares)
            rows += share.tokens.count;
        if (rows > rules_.rows)
            wrong(verdict_.limits,
                  fmt::format("it has {} rows; at most {} are allowed. Are the rows of "
                              "decodes counted, too?",
                              rows, rules_.rows));
        const auto running = std::ranges::count_if(requests_, &Progress::under_way);
        if (running > rules_.sequences)
            wrong(verdict_.limits,
                  fmt::format("{} requests are under way; at most {} may be", running,
                              rules_.sequences));
    }

    /// Judges a request that lacks rows. Decodes get rows before prompts. Among prompts
    /// and waiting requests, the oldest is first. Only the youngest is sent back.
    void judge_turn(std::int64_t number, const std::vector<Share>& shares,
                    const std::vector<Share>& prompts) {
        const Progress& progress = requests_.at(number);
        if (progress.asked.arrival > pass_) return;
        if (progress.under_way && progress.decodes() && progress.last_pass < pass_)
            wrong(verdict_.order,
                  fmt::format("request {} needs one row for its next token and gets "
                              "none; decodes go before prompts",
                              number));
        const bool loses_row = progress.lost_pass == pass_;
        for (const Share& share : loses_row ? shares : prompts)
            if (share.request > number)
                wrong(verdict_.order,
                      fmt::format("request {} has rows, and request {}, which has come "
                                  "before it, {}",
                                  share.request, number,
                                  loses_row            ? "is sent back, not the youngest"
                                  : progress.under_way ? "still lacks rows of its prompt"
                                  : progress.was_sent_back
                                      ? "waits; it was sent back, so it should be first"
                                      : "waits"));
    }

    /// Judges whether the cache still has all tokens of the share's request so far.
    void look_up(const Share& share) {
        for (std::int64_t token = 0; token < share.tokens.tokens(); ++token) {
            const auto where = place(share, token);
            const auto found = stored_.find(where);
            const bool any = found != stored_.end();
            const Stored there = any ? found->second : Stored{};
            if (any && there.request == share.request && there.token == token) continue;
            wrong(
                verdict_.tokens,
                fmt::format("request {} looks for the keys of its token {} in row {} of "
                            "page {}, where {}",
                            share.request, token, where.second, where.first,
                            any ? fmt::format("token {} of request {} was stored in "
                                              "pass {}",
                                              there.token, there.request, there.pass)
                                : "nothing has been stored"));
        }
    }

    /// Updates a request that had rows in this pass, at the end of the pass.
    void leave(std::int64_t number) {
        Progress& progress = requests_.at(number);
        if (!progress.lacks_rows() && !progress.is_done()) ++progress.known;
        progress.under_way = goes_on(number);
        if (progress.under_way || progress.is_done()) return;
        progress.was_sent_back = true;
        // A decode gets a row in each pass, so it was sent back in the next pass. For a
        // prompt, which may get no row, the pass in which it was sent back is unknown.
        if (progress.decodes()) progress.lost_pass = pass_ + 1;
        progress.computed = 0;
    }

    /// Returns whether the request continues in a later pass. If it was sent back, its
    /// next rows begin with its first token again.
    bool goes_on(std::int64_t number) const {
        for (auto pass = plan_.begin() + pass_ + 1; pass != plan_.end(); ++pass) {
            const auto next = std::ranges::find(*pass, number, &Share::request);
            if (next != pass->end()) return next->tokens.first != 0;
        }
        return false;
    }

    const Rules& rules_;
    const Plan& plan_;
    std::vector<Progress> requests_;
    std::map<std::pair<std::int64_t, std::int64_t>, Stored> stored_;  ///< by page and row
    std::int64_t pass_ = 0;
    Verdict verdict_;
};

}  // namespace

Verdict replayed(const Batch& batch, const Plan& plan) {
    return Replay(batch, plan).judge();
}

}  // namespace lockstep::lessons::decode
