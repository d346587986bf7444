#include "lessons/assignments/decode/grading/batching.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "lessons/assignments/decode/grading/replay.hpp"
#include "lessons/assignments/needs.hpp"

namespace lockstep::lessons::decode {

namespace {

struct NamedCase {
    std::string name;
    BatchingCase batching;
    LibraryRun library;
};

/// Requests are drawn from this.
struct Mix {
    const char* name;
    Rules rules;
    std::int64_t requests;
    std::int64_t most_prompt;
    std::int64_t most_output;
    std::int64_t most_apart;  ///< passes from one arrival to the next
    int preemptions;          ///< of the library, at least
};

NamedCase drawn_once(const Judge& judge, const Mix& mix, int trial) {
    NamedCase drawn{mix.name, {mix.rules, {}, 0}, {}};
    const auto draw = [&](const char* what, std::int64_t i, std::int64_t low,
                          std::int64_t high) {
        return judge.draw(fmt::format("{} {} {} {}", mix.name, trial, what, i), low,
                          high);
    };
    std::int64_t pass = 0;
    for (std::int64_t i = 0; i < mix.requests; ++i) {
        pass += draw("apart", i, 0, mix.most_apart);
        drawn.batching.requests.push_back(
            {pass, draw("prompt", i, 1, mix.most_prompt),
             draw("output", i, 1 + mix.most_output / 2, mix.most_output)});
    }
    drawn.library = run_library(drawn.batching);
    // A batcher that serves one request after another needs no more.
    drawn.batching.passes = pass + 20;
    for (const Arrival& each : drawn.batching.requests)
        drawn.batching.passes +=
            each.output + (each.prompt + mix.rules.rows - 1) / mix.rules.rows;
    return drawn;
}

/// Returns rules near these.
Rules varied(const Judge& judge, const char* name, Rules rules) {
    const auto draw = [&](const char* what, std::int64_t low, std::int64_t high) {
        return judge.draw(fmt::format("{}: {}", name, what), low, high);
    };
    rules.rows += draw("rows", -1, 1);
    rules.sequences += draw("sequences", 0, 1);
    rules.pages += draw("pages", -1, 1);
    rules.page_rows += draw("rows of a page", 0, 1);
    return rules;
}

/// Draws until the library's batcher has to send back as many.
NamedCase drawn(const Judge& judge, Mix mix) {
    constexpr int kMostTrials = 200;
    mix.rules = varied(judge, mix.name, mix.rules);
    NamedCase one;
    for (int trial = 0; trial < kMostTrials; ++trial) {
        one = drawn_once(judge, mix, trial);
        if (one.library.preemptions >= mix.preemptions) break;
    }
    return one;
}

/// Requests that wait for rows, for one of few places, for pages, and that come late.
std::vector<NamedCase> all_cases(const Judge& judge) {
    return {drawn(judge, {"long prompts", {8, 4, 64, 4}, 8, 26, 8, 2, 0}),
            drawn(judge, {"many at once", {12, 3, 48, 4}, 10, 8, 12, 0, 0}),
            drawn(judge, {"few pages", {10, 5, 9, 3}, 9, 9, 14, 1, 2}),
            drawn(judge, {"late requests", {6, 3, 10, 4}, 6, 12, 6, 12, 0})};
}

const TaskResult& run(Judge& judge, const NamedCase& of) {
    return judge.run({of.name, {{"batch", {}, numbers_of(of.batching)}}});
}

const HostTensor& value_left(const TaskResult& result, const std::string& name) {
    const auto found = result.ranks.front().values.find(name);
    if (found == result.ranks.front().values.end())
        throw Judge::No{Mark::failed, "passes, and the pages that are free", "none", ""};
    return found->second;
}

struct Judged {
    Verdict verdict;
    double free = 0;  ///< pages, as the batcher says
};

Judged judged(Judge& judge, const NamedCase& of) {
    const TaskResult& result = run(judge, of);
    const auto plan = read_log(value_left(result, "log"));
    const HostTensor& free = value_left(result, "free");
    if (!plan || free.elements() != 1)
        throw Judge::No{Mark::failed, "passes, and the pages that are free",
                        "something else", ""};
    return {replayed(of.batching, *plan), free.at(0)};
}

std::string text_of(const NamedCase& of) {
    const Rules& rules = of.batching.rules;
    return fmt::format(
        "{}: {} requests, passes of {} rows and {} sequences, {} pages of "
        "{}",
        of.name, of.batching.requests.size(), rules.rows, rules.sequences, rules.pages,
        rules.page_rows);
}

/// A sentence of the verdict is the measured thing.
void ask(Judge& judge, const std::string& asked, const std::string& wrong,
         const std::string& right) {
    judge.ask(wrong.empty(), asked, wrong.empty() ? right : wrong);
}

/// The verdict on a case all of whose tokens are right.
Judged judged_right(const Judge& judge, const NamedCase& of) {
    Judged right;
    needs(judge, "a12.3-tokens", [&](Judge& asking) {
        right = judged(asking, of);
        ask(asking, "", right.verdict.tokens, "");
    });
    return right;
}

void judge_entry(Judge& judge, std::string Verdict::*entry, const std::string& asked,
                 const std::string& right) {
    for (const NamedCase& of : all_cases(judge)) {
        // It may be why tokens never come.
        Verdict verdict;
        needs(judge, "a12.3-tokens",
              [&](Judge& asking) { verdict = judged(asking, of).verdict; });
        if (!verdict.unfinished || (verdict.*entry).empty())
            verdict = judged_right(judge, of).verdict;
        ask(judge, fmt::format("{}: {}", text_of(of), asked), verdict.*entry, right);
    }
}

}  // namespace

void judge_batched_tokens(Judge& judge) {
    for (const NamedCase& of : all_cases(judge))
        ask(judge, text_of(of) + ": each row finds its own tokens, and all get theirs",
            judged(judge, of).verdict.tokens, "they do");
}

void judge_limits(Judge& judge) {
    judge_entry(judge, &Verdict::limits, "no pass has more", "none has");
}

void judge_order(Judge& judge) {
    judge_entry(judge, &Verdict::order,
                "decodes first, then the oldest; the youngest is sent back", "they are");
}

void judge_passes(Judge& judge) {
    for (const NamedCase& of : all_cases(judge)) {
        const Verdict verdict = judged_right(judge, of).verdict;
        needs(judge, "a12.3-limits",
              [&](Judge& asking) { ask(asking, "", verdict.limits, ""); });
        needs(judge, "a12.3-order",
              [&](Judge& asking) { ask(asking, "", verdict.order, ""); });
        const std::int64_t most = of.library.passes + of.library.passes / 20;
        judge.ask(
            verdict.passes <= most,
            fmt::format("{}: at most {} passes", text_of(of), most),
            fmt::format("{} passes", verdict.passes),
            "a request joins as soon as rows, a place and pages for the tokens that "
            "it has are free; prompts take what rows the decodes leave; nothing is "
            "kept for tokens that are yet to come");
    }
}

void judge_pages(Judge& judge) {
    for (const NamedCase& of : all_cases(judge)) {
        Judged of_case;
        needs(judge, "a12.3-tokens",
              [&](Judge& asking) { of_case = judged(asking, of); });
        const auto pages = static_cast<double>(of.batching.rules.pages);
        judge.ask(of_case.free == pages,
                  fmt::format("{}: {} free pages in the end", text_of(of), pages),
                  fmt::format("{}", of_case.free),
                  of_case.free < pages
                      ? "pages come back when a request has its last token, and when it "
                        "is sent back: all of them"
                      : "pages come back once, and only from who has them");
        judged_right(judge, of);
    }
}

}  // namespace lockstep::lessons::decode
