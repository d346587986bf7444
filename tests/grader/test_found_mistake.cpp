#include <fmt/format.h>

#include "src/core/require.hpp"
#include "src/course/found_mistake.hpp"
#include "tests/catch.hpp"

using namespace lockstep;

namespace {

const std::vector<std::string> kWords{"wrong_peer", "too_often"};

/// Reads the entry "ring".
FoundMistake read(const std::string& text) {
    return FoundMistake(text, "answers.json", "ring");
}

std::string document(const std::string& ranks, const std::string& line,
                     const std::string& cause) {
    return fmt::format(R"({{"ring": {{"ranks": {}, "line": {}, "cause": {}}}}})", ranks,
                       line, cause);
}

/// Returns the error message about the text.
std::string complaint(const std::string& text) {
    try {
        const FoundMistake found = read(text);
        found.ranks(4);
        found.line();
        found.cause(kWords);
    } catch (const UsageError& error) {
        return error.what();
    }
    return "";
}

}  // namespace

TEST_CASE("A found mistake is read from a document with other contents", "[grader]") {
    for (const std::string& text :
         {document("[2, 0]", "17", R"("wrong_peer")"),
          document("[2, 0, 2]", "17", R"("wrong_peer")"),
          std::string(R"({"pipe": 3, "ring": {"note": [], "ranks": [0, 2],
                  "line": 17, "cause": "wrong_peer"}})")}) {
        const FoundMistake found = read(text);
        CHECK(found.ranks(4) == std::set<int>{0, 2});
        CHECK(found.line() == 17);
        CHECK(found.cause(kWords) == "wrong_peer");
    }
    CHECK(read(document("\"all\"", "17", R"("wrong_peer")")).ranks(4) ==
          std::set<int>{0, 1, 2, 3});
}

TEST_CASE("Each part is read separately and may be missing", "[grader]") {
    const FoundMistake no_ranks = read(document("null", "17", R"("wrong_peer")"));
    CHECK_FALSE(no_ranks.ranks(4));
    CHECK(no_ranks.line() == 17);
    CHECK_FALSE(read(document("[0]", "null", R"("wrong_peer")")).line());
    CHECK_FALSE(read(document("[0]", "17", "null")).cause(kWords));
    const FoundMistake odd_line = read(document("[0]", "-1", R"("wrong_peer")"));
    CHECK(odd_line.ranks(4) == std::set<int>{0});
    CHECK_THROWS_AS(odd_line.line(), UsageError);
    CHECK(odd_line.cause(kWords) == "wrong_peer");
}

TEST_CASE("An impossible part is refused with its place and what was expected",
          "[grader][errors]") {
    for (const char* ranks : {"2", "[]", "[4]", "[-1]", "[0.5]", "[\"0\"]", "[[0]]", "{}",
                              "\"none\"", "true", "[18446744073709551615]", "[1e300]"})
        CHECK(
            complaint(document(ranks, "17", R"("too_often")")) ==
            "answers.json, \"ring\": expected \"ranks\": a list of numbers from 0 to 3, "
            "such as [0], or \"all\"");
    for (const char* line :
         {"0", "-3", "\"17\"", "17.5", "[17]", "1e9", "99999999999999"})
        CHECK(complaint(document("[0]", line, R"("too_often")")) ==
              "answers.json, \"ring\": expected \"line\": the number of a line");
    for (const char* cause : {"\"F10\"", "\"\"", "10", "[\"too_often\"]", "{}"})
        CHECK(complaint(document("[0]", "17", cause)) ==
              "answers.json, \"ring\": expected \"cause\": one of wrong_peer, too_often");
    CHECK(complaint(R"({"ring": {"ranks": null, "lines": 3, "cause": null}})") ==
          "answers.json, \"ring\": expected an entry \"line\"");
    CHECK(complaint(R"({"ring": [0, 17, "too_often"]})") ==
          "answers.json, \"ring\": expected an object with \"ranks\", \"line\" and "
          "\"cause\"");
}

TEST_CASE("Any bytes are refused with a sentence", "[grader][errors]") {
    const std::string comma = " (a comma too many, or one missing?)";
    CHECK(complaint("{\n  \"ring\": {,") ==
          "answers.json is not JSON: line 2, column 12" + comma);
    CHECK(complaint("") == "answers.json is not JSON: line 1, column 1" + comma);
    CHECK_THAT(complaint("\xff\xfe\x01"),
               Catch::Matchers::StartsWith("answers.json is not JSON: line 1"));
    CHECK_THAT(complaint("{\"ring\": \"\xc3\"}"),
               Catch::Matchers::StartsWith("answers.json is not JSON: line 1"));
    CHECK_THAT(complaint(document("[0]", "1e999", R"("too_often")")),
               Catch::Matchers::StartsWith("answers.json is not JSON"));
    CHECK_THAT(complaint(std::string(1 << 20, '[')),
               Catch::Matchers::StartsWith("answers.json is not JSON: line 1"));
    const std::string deep = std::string(1 << 19, '[') + std::string(1 << 19, ']');
    for (const std::string& text : {std::string("null"), std::string("[]"),
                                    std::string("7"), std::string("{}"), deep})
        CHECK(complaint(text) ==
              "answers.json: expected an object with an entry \"ring\"");
}
