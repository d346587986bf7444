#include <limits>

#include "lessons/runner/page.hpp"
#include "lessons/runner/page_text.hpp"
#include "lessons/runner/quote.hpp"
#include "src/text/wrap.hpp"
#include "tests/catch.hpp"

using namespace lockstep;
using namespace lockstep::lessons;

namespace {

/// A page that writes into a string, and a learner with typed lines.
struct Bench {
    explicit Bench(PageStyle style = {40, false, false}, std::vector<std::string> typed = {})
        : answers(std::move(typed)),
          page(
              style, record, [this](std::string_view text) { shown += text; },
              answers.empty() ? Ask(nullptr) : [this](const std::string& prompt) {
                  shown += prompt;
                  prompts.push_back(prompt);
                  if (asked == answers.size()) return std::optional<std::string>();
                  shown += answers[asked] + "\n";
                  return std::optional(answers[asked++]);
              }) {}

    Record record;
    std::string shown;
    std::vector<std::string> prompts;
    std::vector<std::string> answers;
    std::size_t asked = 0;
    TextPage page;
};

std::string predicted(std::vector<std::string> typed) {
    Bench bench({60, false, false}, std::move(typed));
    bench.page.predict("How much?", 6000, "bytes", "3/4 x 8,000");
    return bench.shown;
}

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

}  // namespace

TEST_CASE("paragraphs are wrapped and separated by blank lines", "[lessons]") {
    Bench bench({20, false, false});
    bench.page.text("One two three four five.\n\nSix.");
    bench.page.verbatim("  a = b\n\n  c = d");
    CHECK(bench.shown == "One two three four\nfive.\n\nSix.\n\n  a = b\n\n  c = d\n\n");
    CHECK(bench.page.shown() == bench.shown);
}

TEST_CASE("a heading is underlined by its longest line", "[lessons]") {
    Bench bench({12, false, false});
    bench.page.heading("Step 1 of 2: accumulate");
    CHECK(bench.shown == "Step 1 of 2:\naccumulate\n────────────\n\n");
}

TEST_CASE("text stops at 100 columns where the window is wider", "[lessons]") {
    Bench bench({200, false, false});
    bench.page.text(std::string(99, 'a') + " b");
    CHECK(bench.shown == std::string(99, 'a') + "\nb\n\n");
}

TEST_CASE("checks are recorded, and stand together", "[lessons]") {
    Bench bench;
    bench.page.check(Check::at_most("weights", 3e-17, 1e-13));
    bench.page.check(Check::equal("bytes", 5999, 6000));
    bench.page.text("And so on.");
    CHECK(bench.shown ==
          "ok      weights: at most 1e-13\n"
          "FAILED  bytes: 5,999 instead of 6,000\n\nAnd so on.\n\n");
    CHECK(bench.record.checks.size() == 2);

    bench.page.check(Check::equal("bytes", 1, 1));
    bench.page.end();
    CHECK(bench.shown.ends_with("\n\nok      bytes: 1\n\n"));
}

TEST_CASE("a verdict shows figures that are the same on every machine", "[lessons]") {
    CHECK(verdict_text(Check::at_most("x", 3.2e-17, 1e-13), false) == "at most 1e-13");
    CHECK(verdict_text(Check::at_most("x", 3.2e-17, 1e-13), true) ==
          "3.2e-17, at most 1e-13");
    CHECK(verdict_text(Check::at_most("x", 4000, 5000), false) == "4,000, at most 5,000");
    CHECK(verdict_text(Check::at_most("x", 2, 1), false) ==
          "2, but at most 1 is allowed");
    CHECK(verdict_text(Check::at_most("x", kNaN, 1), false) ==
          "nan, but at most 1 is allowed");
    CHECK(verdict_text(Check::equal("x", 4000, 4000), false) == "4,000");
    CHECK(verdict_text(Check::equal("x", 3999, 4000), false) == "3,999 instead of 4,000");
}

TEST_CASE("colour is there where it is asked for, and changes no character",
          "[lessons]") {
    const auto show = [](Bench& bench) {
        bench.page.heading("Title");
        bench.page.table({{"a", "b"}, {{"1", "2"}}});
        bench.page.predict("How much?", 1, "byte", "1");
        bench.page.check(Check::at_most("x", 2, 1));
        bench.page.quote(std::string(quotes().front().name));
    };
    Bench plain({80, false, false});
    Bench coloured({80, true, false});
    show(plain);
    show(coloured);
    CHECK(plain.shown.find('\x1b') == std::string::npos);
    CHECK(coloured.shown.find("\x1b[1;31mFAILED\x1b[0m") != std::string::npos);

    std::string stripped = coloured.shown;
    for (std::size_t at = 0; (at = stripped.find('\x1b')) != std::string::npos;)
        stripped.erase(at, stripped.find('m', at) + 1 - at);
    CHECK(stripped == plain.shown);
}

TEST_CASE("no line is longer than the window, whatever is shown", "[lessons]") {
    for (const int width : {40, 60, 100}) {
        Bench bench({width, false, true});
        bench.page.heading(
            "The same four batches on four virtual devices, one batch each");
        bench.page.text(
            "Accumulation saves memory; data parallelism saves time, in bytes.");
        bench.page.verbatim(
            "    gradient = (g_0 + g_1 + g_2 + g_3) / 4    # as DDP has it, not as the "
            "notes");
        bench.page.check(
            Check::at_most("weights agree with those of the reference", 1e-17, 1e-13));
        bench.page.predict(
            "How many bytes does each of the four devices send in one step?", 1650,
            "bytes", "2 (n-1)/n x (10 x 5 + 5) x 4 bytes, n = 4, and so on");
        for (const Quote& quote : quotes())
            bench.page.quote(std::string(quote.name));
        for (const std::string& line : split_lines(bench.shown)) {
            CAPTURE(width, line);
            CHECK(columns_of(line) <= width);
        }
    }
}

TEST_CASE("in a pipe a prediction is question, answer and working", "[lessons]") {
    CHECK(predicted({}) ==
          "Predict:  How much?\nAnswer:  6,000 bytes\n    3/4 x 8,000\n\n");
}

TEST_CASE("an answer within one percent is right", "[lessons]") {
    const std::string prompt =
        "Predict:  How much?\nYour answer in bytes (Enter passes): ";
    const std::string answer = "  6,000 bytes\n    3/4 x 8,000\n\n";
    CHECK(predicted({"6,000"}) == prompt + "6,000\nRight:" + answer);
    CHECK(predicted({"5.95e3"}) == prompt + "5.95e3\nRight:" + answer);
    CHECK(predicted({"5,900"}) == prompt + "5,900\nNot so:" + answer);
    CHECK(predicted({""}) == prompt + "\nAnswer:" + answer);
}

TEST_CASE("what is no number is asked for once more, then the lesson goes on",
          "[lessons]") {
    Bench bench({60, false, false}, {"many", "6k", "6000"});
    bench.page.predict("How much?", 6000, "bytes", "");
    CHECK(bench.prompts.size() == 2);
    CHECK(bench.prompts[1] == "A number such as 1,500 or 1.5e3, in bytes: ");
    CHECK(bench.shown.find("Answer:  6,000 bytes") != std::string::npos);
}

TEST_CASE("a plain number is asked for without a unit", "[lessons]") {
    Bench bench({60, false, false}, {"nine", "9"});
    bench.page.predict("How much?", 9, "", "3*3");
    CHECK(bench.prompts[0] == "Your answer (Enter passes): ");
    CHECK(bench.prompts[1] == "A number such as 1,500 or 1.5e3: ");
    CHECK(bench.page.shown() ==
          "Predict:  How much?\nYour answer: 9\nRight:  9\n    3*3\n\n");
}

TEST_CASE("a page shown again says what was answered", "[lessons]") {
    Bench bench({60, false, false}, {"5"});
    bench.page.predict("How much?", 6000, "bytes", "3/4 x 8,000");
    CHECK(bench.page.shown() ==
          "Predict:  How much?\nYour answer: 5 bytes\nNot so:  6,000 bytes\n    3/4 x "
          "8,000\n\n");
}

TEST_CASE("a silent page records checks and says where a quote is missing", "[lessons]") {
    Record record;
    SilentPage page(record);
    page.check(Check::equal("x", 1, 2));
    CHECK(record.checks.size() == 1);
    CHECK_THROWS_AS(page.quote("no such anchor"), std::logic_error);
}
