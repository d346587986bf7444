#include "lessons/page/markdown.hpp"
#include "lessons/page/quote.hpp"
#include "lessons/page/terminal_text.hpp"
#include "lessons/runner/pages.hpp"
#include "src/text/wrap.hpp"
#include "tests/catch.hpp"

using namespace lockstep;
using namespace lockstep::lessons;

namespace {

std::string text_of(const Document& page, const TextLook& look) {
    std::string text;
    for (const std::string& line : lines_of(page, look))
        text += line + "\n";
    return text;
}

std::string shown(const std::string& markdown, int width = 40, bool colour = false) {
    return text_of(read_markdown(markdown), {width, colour});
}

std::string without_colour(std::string text) {
    for (std::size_t at = 0; (at = text.find('\x1b')) != std::string::npos;)
        text.erase(at, text.find('m', at) + 1 - at);
    return text;
}

/// Returns all pages that need no values of a run, and all code that lessons quote.
std::vector<Document> all_pages() {
    std::vector<Document> pages{read_markdown(text_called("glossary.md"))};
    for (int number = 1; number <= 31; ++number)
        pages.push_back(
            read_markdown(text_called(std::string("faults/F") + (number < 10 ? "0" : "") +
                                      std::to_string(number) + ".md")));
    for (const Quote& quote : quotes())
        pages.push_back({{Listing{"cpp", std::string(quote.code), "a.cpp:1"}}});
    return pages;
}

}  // namespace

TEST_CASE("paragraphs are wrapped and separated by blank lines", "[lessons]") {
    CHECK(shown("One two three four five.\n\nSix.", 20) ==
          "One two three four\nfive.\n\nSix.\n");
    CHECK(shown("# A title that is long", 12) == "A title that\nis long\n────────────\n");
    CHECK(shown("```\na\n\nb\n```") == "  a\n\n  b\n");
    CHECK(shown("- thirteen two\n- three", 13) == "- thirteen\n  two\n- three\n");
    CHECK(shown("3. x\n4. y") == "3. x\n4. y\n");
    CHECK(shown("> thirteen two", 13) == "│ thirteen\n│ two\n");
}

TEST_CASE("text stops at 100 columns where the window is wider", "[lessons]") {
    CHECK(shown(std::string(99, 'a') + " b", 200) == std::string(99, 'a') + "\nb\n");
}

TEST_CASE("styles continue over line ends and change no character", "[lessons]") {
    CHECK(shown("a **b c** `d`", 3, true) ==
          "a \x1b[1mb\x1b[0m\n\x1b[1mc\x1b[0m \x1b[36md\x1b[0m\n");
    for (const Document& page : all_pages())
        for (const int width : {30, 60, 100})
            CHECK(without_colour(text_of(page, {width, true})) ==
                  text_of(page, {width, false}));
}

TEST_CASE("no line of any page is longer than the window", "[lessons]") {
    for (const Document& page : all_pages())
        for (const int width : {30, 60, 80, 100})
            for (const std::string& line : lines_of(page, {width, false})) {
                CAPTURE(width, line);
                CHECK(columns_of(line) <= width);
            }
}

TEST_CASE("words of two languages and ideographs are wrapped by their columns",
          "[lessons]") {
    CHECK(shown("把一个批次切成四份 micro-batch。", 12) ==
          "把一个批次切\n成四份\nmicro-batch\n。\n");
}
