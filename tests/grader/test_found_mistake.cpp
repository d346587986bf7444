#include <fmt/format.h>

#include "src/core/require.hpp"
#include "src/course/found_mistake.hpp"
#include "tests/catch.hpp"

using namespace lockstep;

namespace {

const std::vector<std::string> kWords{"wrong_peer", "too_often"};

/// Of the entry "ring", on four ranks.
std::optional<FoundMistake> read(const std::string& text) {
    return read_found_mistake(text, "answers.json", "ring", 4, kWords);
}

std::string with(const std::string& ranks, const std::string& line,
                 const std::string& cause) {
    return fmt::format(R"({{"ring": {{"ranks": {}, "line": {}, "cause": {}}}}})", ranks,
                       line, cause);
}

/// What is said of the text.
std::string complaint(const std::string& text) {
    try {
        read(text);
    } catch (const UsageError& error) {
        return error.what();
    }
    return "";
}

}  // namespace

TEST_CASE("A found mistake is read, whatever else the document has", "[grader]") {
    const FoundMistake expected{{0, 2}, 17, "wrong_peer"};
    CHECK(read(with("[2, 0]", "17", R"("wrong_peer")")) == expected);
    CHECK(read(with("[2, 0, 2]", "17", R"("wrong_peer")")) == expected);
    CHECK(read(R"({"pipe": 3, "ring": {"note": [], "ranks": [0, 2],
                  "line": 17, "cause": "wrong_peer"}})") == expected);
    CHECK(read(with("\"all\"", "17", R"("wrong_peer")"))->ranks ==
          std::set<int>{0, 1, 2, 3});
}

TEST_CASE("A mistake of which a part is open is none", "[grader]") {
    CHECK_FALSE(read(with("null", "17", R"("wrong_peer")")));
    CHECK_FALSE(read(with("[0]", "null", R"("wrong_peer")")));
    CHECK_FALSE(read(with("[0]", "17", "null")));
}

TEST_CASE("A part that cannot be says what was expected, and where", "[grader][errors]") {
    for (const char* ranks : {"2", "[]", "[4]", "[-1]", "[0.5]", "[\"0\"]", "[[0]]", "{}",
                              "\"none\"", "true", "[18446744073709551615]", "[1e300]"})
        CHECK(
            complaint(with(ranks, "17", R"("too_often")")) ==
            "answers.json, \"ring\": expected \"ranks\": a list of numbers from 0 to 3, "
            "such as [0], or \"all\"");
    for (const char* line :
         {"0", "-3", "\"17\"", "17.5", "[17]", "1e9", "99999999999999"})
        CHECK(complaint(with("[0]", line, R"("too_often")")) ==
              "answers.json, \"ring\": expected \"line\": the number of a line");
    for (const char* cause : {"\"F10\"", "\"\"", "10", "[\"too_often\"]", "{}"})
        CHECK(complaint(with("[0]", "17", cause)) ==
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
          "answers.json is no JSON: line 2, column 12" + comma);
    CHECK(complaint("") == "answers.json is no JSON: line 1, column 1" + comma);
    CHECK_THAT(complaint("\xff\xfe\x01"),
               Catch::Matchers::StartsWith("answers.json is no JSON: line 1"));
    CHECK_THAT(complaint("{\"ring\": \"\xc3\"}"),
               Catch::Matchers::StartsWith("answers.json is no JSON: line 1"));
    CHECK_THAT(complaint(with("[0]", "1e999", R"("too_often")")),
               Catch::Matchers::StartsWith("answers.json is no JSON"));
    CHECK_THAT(complaint(std::string(1 << 20, '[')),
               Catch::Matchers::StartsWith("answers.json is no JSON: line 1"));
    const std::string deep = std::string(1 << 19, '[') + std::string(1 << 19, ']');
    for (const std::string& text : {std::string("null"), std::string("[]"),
                                    std::string("7"), std::string("{}"), deep})
        CHECK(complaint(text) ==
              "answers.json: expected an object with an entry \"ring\"");
}
