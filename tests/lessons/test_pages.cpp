// Tests what is shown for a lesson's page and for the findings of its experiments.

#include "lessons/page/lesson_page.hpp"
#include "lessons/page/markdown.hpp"
#include "lessons/page/prediction.hpp"
#include "lessons/page/terminal_text.hpp"
#include "src/core/require.hpp"
#include "src/pipeline/generators.hpp"
#include "src/pipeline/timer.hpp"
#include "src/text/wrap.hpp"
#include "tests/catch.hpp"

using namespace lockstep;
using namespace lockstep::lessons;
using Catch::Matchers::Equals;

namespace {

/// Returns a page of one step with this text.
LessonPage page_with(const std::string& text) {
    return {"a.md", "# Title\n\nQuestion?\n\n## Step {#one}\n\n" + text};
}

/// Returns what a step with this text shows after `give` has given values to its names.
template <typename Give>
std::string shown(const std::string& text, const Give& give) {
    const LessonPage page = page_with(text);
    Record record;
    Findings found(page, record);
    give(found);
    std::string all;
    for (const std::string& line : lines_of(
             filled(page, page.sections().front().text, found, Language::english), {}))
        all += line + "\n";
    return all;
}

std::string refusal(const std::string& text) {
    try {
        shown(text, [](Findings& found) {
            found.give("yes", true);
            found.give("word", "a");
            found.give("number", 1);
        });
    } catch (const UsageError& error) {
        return error.what();
    }
    return "";
}

}  // namespace

TEST_CASE("the solution of an assignment is shown only on request", "[lessons]") {
    const LessonPage page = page_with(
        "{{solution zero: zero-1, zero-2}} This is `it`:\n\nAnd this comes behind.\n");
    Record record;
    const Findings found(page, record);
    const auto blocks = [&](Solutions solutions) {
        return filled(page, page.sections().front().text, found, Language::english,
                      solutions);
    };
    const Document shown = blocks(Solutions::shown);
    REQUIRE(shown.size() == 4);
    CHECK(plain(shown[0].as<Paragraph>()->text) == "This is it:");
    CHECK(shown[1].as<Listing>()->place.starts_with("src/parallel/zero_1.cpp:"));
    CHECK(shown[2].as<Listing>()->place.starts_with("src/parallel/zero_2.cpp:"));
    const Document hidden = blocks(Solutions::hidden);
    REQUIRE(hidden.size() == 2);
    const std::string said = plain(hidden[0].as<Paragraph>()->text);
    CHECK(said.find("The assignment zero") != std::string::npos);
    CHECK(said.find("--show code") != std::string::npos);
}

TEST_CASE("a page has a title, a question, facts, steps and an end", "[lessons]") {
    const LessonPage page("a.md",
                          "---\nminutes: 30\nafter: none\n---\n\n# Title\n\nQuestion?\n\n"
                          "## One {#first}\n\nText.\n\n## End\n\nThat is all.\n");
    CHECK(page.title() == "Title");
    CHECK(page.question() == "Question?");
    CHECK(page.fact("minutes") == "30");
    CHECK(page.fact("after") == "none");
    CHECK(page.fact("colour").empty());
    REQUIRE(page.sections().size() == 2);
    CHECK(page.steps().size() == 1);
    CHECK(page.steps().front()->name == "first");
    CHECK(page.steps().front()->title == "One");
    CHECK(page.steps().front()->line == 10);
    CHECK_FALSE(page.sections().back().is_step());
    CHECK_THROWS_WITH(LessonPage("a.md", "no page"),
                      Equals("a.md: a lesson's page has a title (# …), a question, and "
                             "steps (## … {#name})"));
}

TEST_CASE("values replace their names, in their units", "[lessons]") {
    const auto give = [](Findings& found) {
        found.give("rows", 1000);
        found.give("size", Figure::bytes(153884));
        found.give("memory", Figure::memory(153884));
        found.give("time", Figure::time(45'388'800));
        found.give("loss", Figure::decimals(3.35661, 4));
        found.give("part", Figure::percent(27.27, 1));
        found.give("off", Figure::power(0.14));
        found.give("name", "ring");
        found.give("a.b", 1);
    };
    CHECK(shown("{rows} rows, {size}, {memory}, {time}, {loss}, {part}, {off}, {name}, "
                "`{a.b}`.",
                give) ==
          "1,000 rows, 153,884 bytes, 150 KiB, 45.4 us, 3.3566, 27.3 %, 1.4e-01, ring, "
          "1.\n");
    CHECK(shown("A set {1, 2}, {} and {rows + 1}.", give) ==
          "A set {1, 2}, {} and {rows + 1}.\n");
    CHECK(shown("```\n{rows} x\n```", give) == "  1,000 x\n");
    CHECK(text_of(Figure::bytes(1)) == "1 byte");
    CHECK(text_of(Figure::seconds(12)) == "12 s");
}

TEST_CASE("a word is written as the page says", "[lessons]") {
    CHECK(shown("{{word two_way: two ways, {n} times}}\n\n{how}, {other}.",
                [](Findings& found) {
                    found.give("how", "two_way");
                    found.give("other", "ring");
                    found.give("n", 2);
                }) == "two ways, {n} times, ring.\n");
}

TEST_CASE("a check is a sentence; in the record it has its label", "[lessons]") {
    const LessonPage page = page_with(
        "{{check sent: bytes sent on {n} devices}} They sent {sent}, at most "
        "{near.bound}.\n\n{{check near: nearness}}\n\n{{check far: farness}}\n\n{{check "
        "no: no numbers}} Never said.\n\nThe end.");
    Record record;
    Findings found(page, record);
    found.give("n", 4);
    found.equal("sent", Figure::bytes(12), 12);
    found.at_most("near", 1e-9, 1e-5);
    found.equal("far", 1, 1);
    found.not_compared("no");
    const Document document =
        filled(page, page.sections().front().text, found, Language::english);
    std::string all;
    for (const std::string& line : lines_of(document, {}))
        all += line + "\n";
    CHECK(all ==
          "ok      They sent 12 bytes, at most 1e-5.\n\n(Not compared, because this run "
          "computes only shapes.)\n\nThe end.\n\n2 more checks passed.\n");
    REQUIRE(record.checks.size() == 3);
    CHECK(record.checks[0].name == "bytes sent on 4 devices");
    CHECK(record.checks[1].name == "nearness");
}

TEST_CASE("a failed check shows both figures, in any place on the page", "[lessons]") {
    const std::string text = "{{check a: one}} A truth.\n\n{{check b: other}}";
    CHECK(shown(text,
                [](Findings& found) {
                    found.equal("a", Figure::bytes(3), 4);
                    found.at_most("b", 2.0, 1);
                }) ==
          "FAILED  one: 3 bytes instead of 4 bytes\n"
          "FAILED  other: 2, but at most 1 is allowed\n");
}

TEST_CASE("a list is rows of a table and checks of each row", "[lessons]") {
    const auto give = [](Findings& found) {
        found.give("unit", "s");
        for (const int n : {1, 2}) {
            Findings& row = found.row("sizes");
            row.give("n", n);
            row.equal("square", n * n, n * n);
        }
    };
    const LessonPage page = page_with("{{check sizes.square: square of {n} {unit}}}");
    Record record;
    Findings found(page, record);
    give(found);
    REQUIRE(record.checks.size() == 2);
    CHECK(record.checks[1].name == "square of 2 s");

    CHECK(shown("{{check sizes.square: {n}}} All in {unit}.", give) ==
          "ok      All in s.\n");
    CHECK(shown("| n | {unit} | none |\n|--:|--:|--:|\n| {{each sizes}} {n} | {square} | "
                "{x?} |\n| all | 5 | {x?} |\n\n{{check sizes.square: {n}}}",
                give) ==
          "n    s\n───  ─\n1    1\n2    4\nall  5\n\n2 more checks passed.\n");
}

TEST_CASE("one of two branches is shown, and only its values are needed", "[lessons]") {
    const std::string text =
        "{{if yes}}\n\nA {a}.\n\n{{if not yes}}\n\nNo.\n\n{{end}}\n\n{{else}}\n\nB {b}."
        "\n\n{{end}}\n\nC.";
    const auto branch = [&](bool yes) {
        return shown(text, [yes](Findings& found) {
            found.give("yes", yes);
            found.give(yes ? "a" : "b", 1);
        });
    };
    CHECK(branch(true) == "A 1.\n\nC.\n");
    CHECK(branch(false) == "B 1.\n\nC.\n");
}

TEST_CASE("a prediction has its hints and its working", "[lessons]") {
    const LessonPage page = page_with(
        "{{predict bytes}}\nHow many?\n\nThink.\n\n{{hint 1/2}} Twice.\n\n{{hint other}} "
        "Not {other}.\n\n{{answer}}\n2 · 3\n\n{{end}}\n\nBehind.");
    Record record;
    Findings found(page, record);
    found.give("bytes", Figure::bytes(6));
    found.give("other", 9);
    const Document document =
        filled(page, page.sections().front().text, found, Language::english);
    REQUIRE(document.size() == 2);
    const Prediction& prediction = *document.front().as<Question>()->prediction;
    CHECK(prediction.name == "bytes");
    CHECK(prediction.answer.value == 6);
    CHECK(prediction.question.size() == 2);
    REQUIRE(prediction.hints.size() == 2);
    CHECK(prediction.hints[0].wrong == 3);
    CHECK(prediction.hints[1].wrong == 9);
    CHECK(plain(prediction.hints[1].text) == "Not 9.");
    CHECK(plain(prediction.working.front().as<Paragraph>()->text) == "2 · 3");
}

TEST_CASE("figures on a page in Chinese have their units in Chinese", "[lessons]") {
    const LessonPage page("a.zh.md", "# 题\n\n问？\n\n## 步 {#one}\n\n{size}，{time}。");
    Record record;
    Findings found(page, record);
    found.give("size", Figure::bytes(153884));
    found.give("time", Figure::time(45'388'800));
    const Document document =
        filled(page, page.sections().front().text, found, Language::chinese);
    CHECK(plain(document.front().as<Paragraph>()->text) == "153,884 字节，45.4 us。");
    Prediction prediction;
    prediction.answer = Figure::bytes(6);
    CHECK(answer_text(prediction, Language::chinese) == "6 字节");
    CHECK(unit_asked_for(prediction.answer, Language::chinese) == "字节");
    CHECK(judge(prediction, "6 字节").outcome == Judgement::Outcome::right);
}

TEST_CASE("a picture on a page in Chinese has its words in Chinese", "[lessons]") {
    const LessonPage page("a.zh.md",
                          "# 题\n\n问？\n\n## 步 {#one}\n\n{{picture plan: 计划}}");
    Record record;
    Findings found(page, record);
    const Schedule schedule = make_schedule("1f1b", {12, 14, 1});
    found.picture("plan", schedule, time_schedule(schedule, {Durations{}}));
    for (const Language language : {Language::english, Language::chinese}) {
        std::string all;
        for (const std::string& line :
             lines_of(filled(page, page.sections().front().text, found, language), {})) {
            CHECK(columns_of(line) <= 80);
            all += line + "\n";
        }
        const bool chinese = language == Language::chinese;
        for (const char* word : {"stage 11|", "time 0", "held, in micro-batches; c is 12",
                                 "0 peak 12|", "F- forward", "/ idle"})
            CHECK((all.find(word) == all.npos) == chinese);
        for (const char* word : {"阶段 11|", "时间 0", "保存的微批次数；c 表示 12",
                                 "0 峰值 12|", "F- 前向", "/ 空闲"})
            CHECK((all.find(word) != all.npos) == chinese);
        CHECK_THAT(all, Catch::Matchers::StartsWith("计划\n"));
    }
}

TEST_CASE("a prediction may offer choices", "[lessons]") {
    const LessonPage page = page_with(
        "{{predict who}}\nWho waits?\n\n{{option first}} device 0\n\n{{option last}} "
        "device {n}\n\n{{hint first}} It has work.\n\n{{end}}");
    Record record;
    Findings found(page, record);
    found.give("who", "last");
    found.give("n", 3);
    const Document document =
        filled(page, page.sections().front().text, found, Language::english);
    const Prediction& prediction = *document.front().as<Question>()->prediction;
    CHECK(answer_text(prediction) == "b, device 3");
    CHECK(judge(prediction, "B").outcome == Judgement::Outcome::right);
    const Judgement wrong = judge(prediction, "a");
    CHECK(wrong.outcome == Judgement::Outcome::wrong);
    REQUIRE(wrong.hint);
    CHECK(plain(wrong.hint->text) == "It has work.");
    for (const char* typed : {"c", "2", "last", "", "{"})
        CHECK(judge(prediction, typed).outcome == Judgement::Outcome::unreadable);
}

TEST_CASE("a mistake on a page is named with file and line", "[lessons]") {
    CHECK(refusal("{no_such}") == "a.md:7: nothing was given the name no_such");
    CHECK(refusal("Text.\n\n{{check no}} Yes.") ==
          "a.md:9: nothing was checked under the name no");
    CHECK(refusal("{{picture no}}") == "a.md:7: no picture was given the name no");
    CHECK(refusal("{{end}}") == "a.md:7: {{end}} ends nothing");
    CHECK(refusal("{{if yes}}\n\nText.") ==
          "a.md:7: what begins here is not ended by {{end}}");
    CHECK(refusal("{{if word}}\n\n{{end}}") ==
          "a.md:7: nothing was given as true or false under the name word");
    CHECK(refusal("{{if yes}}\n\n{{hint 2}} x\n\n{{end}}") ==
          "a.md:9: {{hint}} stands where {{end}} is expected");
    CHECK(refusal("{{draw x}}").starts_with("a.md:7: {{draw}} is no directive"));
    CHECK(refusal("{{predict no}}\nx\n\n{{end}}") ==
          "a.md:7: no value has the name no, which the question asks for");
    CHECK(refusal("{{predict word}}\nx\n\n{{end}}") ==
          "a.md:7: word is 'a', but the question has no {{option}}");
    CHECK(refusal("{{predict word}}\nx\n\n{{option b}} y\n\n{{end}}") ==
          "a.md:7: word is 'a', which is no {{option}} of the question");
    CHECK(refusal("{{predict number}}\nx\n\n{{hint nmber}} y\n\n{{end}}") ==
          "a.md:7: {{hint nmber}} is for no wrong answer of the question number");
    CHECK(refusal("{{if yes}}\n{{code none}}\n\n{{end}}") ==
          "a.md:7: behind {{if}} a blank line is missing");
    CHECK(refusal("{{code none}}") ==
          "a.md:7: no code in the project is marked `// lesson: none`");
    CHECK(refusal("| a |\n|--|\n| {{each no}} x |") ==
          "a.md:7: no rows were given the name no");
}

TEST_CASE("a check without a label on the page is refused", "[lessons]") {
    CHECK_THROWS_WITH(shown("Text.", [](Findings& found) { found.equal("a", 1, 1); }),
                      Equals("the lesson's page has no {{check a: …}}, but the lesson "
                             "checks a"));
}

TEST_CASE("Markdown becomes blocks, with tables, without HTML", "[lessons]") {
    const Document page = read_markdown(
        "# T\n\n<!-- no -->\nA *b* **c** `d` [e](f).\n\n```cpp\nint x;\n```\n\n1. "
        "one\n2. "
        "two\n\n> said\n\n| a | b |\n|---|--:|\n| 1 | 2 |\n");
    REQUIRE(page.size() == 6);
    const Words& words = page[1].as<Paragraph>()->text;
    CHECK(plain(words) == "A b c d e.");
    CHECK(words[1].emphasis);
    CHECK(words[3].strong);
    CHECK(words[5].code);
    CHECK(words[7].link == "f");
    CHECK(page[2].as<Listing>()->language == "cpp");
    CHECK(page[3].as<List>()->items.size() == 2);
    CHECK(page[5].as<TableBlock>()->rows.size() == 1);
    CHECK(page[5].line == 15);
}
