#include <limits>
#include <nlohmann/json.hpp>

#include "src/text/json.hpp"
#include "tests/catch.hpp"

using namespace lockstep;

namespace {

/// One document; the same code makes it with the JSON library and with ours.
template <typename J>
J document() {
    J list = J::array();
    for (int i = 0; i < 3; ++i)
        list.push_back({{"number", i}, {"half", i / 2.0}});
    J tree{{"text", "a \"quoted\" \xE2\x82\xAC and \xFF"},
           {"none", nullptr},
           {"yes", true},
           {"most", std::numeric_limits<std::uint64_t>::max()},
           {"least", std::numeric_limits<std::int64_t>::min()},
           {"third", 1.0 / 3},
           {"names", std::vector<std::string>{"b", "a"}},
           {"by_name", J(std::map<std::string, int>{{"x", 1}, {"y", 2}})},
           {"one", {"alone"}},
           {"pairs", {{"first", 1}, {"second", {{"deep", 2.0}}}}},
           {"list", list},
           {"empty", J::array()},
           {"nothing", J::object()}};
    tree["added"] = 7;
    tree["yes"] = false;
    return tree;
}

}  // namespace

TEST_CASE("A JSON document has the library's bytes", "[report]") {
    using Library = nlohmann::ordered_json;
    const auto replace = Library::error_handler_t::replace;
    for (const int indent : {-1, 1, 2})
        CHECK(document<Json>().dump(indent) ==
              document<Library>().dump(indent, ' ', false, replace));
}

TEST_CASE("A JSON document is read back as it was written", "[report]") {
    const std::string text = document<Json>().dump(1);
    CHECK(Json::parse(text).dump(1) == text);
    const Json json = Json::parse(R"({"a": [1, -2, 2.5], "b": "c", "d": null})");
    CHECK(json.at("a").elements().at(1).get<int>() == -2);
    CHECK(json.at("a").elements().at(2).get<double>() == 2.5);
    CHECK(json.at("b").is("c"));
    CHECK(json.at("d").is_null());
    CHECK(!json.contains("e"));
    CHECK(json.members().size() == 3);
}

TEST_CASE("deeply nested JSON does not overflow the stack", "[report][errors]") {
    const auto nested = [](std::size_t levels) {
        return std::string(levels, '[') + "1" + std::string(levels, ']');
    };
    CHECK(Json::parse(nested(400)).dump() == nested(400));
    CHECK(Json::parse(nested(500'000)).dump().size() < 1100);
    CHECK_THROWS_AS(Json::parse(std::string(500'000, '[')), JsonError);
}

TEST_CASE("Invalid JSON, or JSON of another type than requested, is an error",
          "[report][errors]") {
    const auto wrong_byte = [](const std::string& text) {
        try {
            static_cast<void>(Json::parse(text));
        } catch (const JsonError& error) {
            return error.byte;
        }
        return std::size_t{12345};
    };
    CHECK(wrong_byte("[1,]") == 4);
    CHECK(wrong_byte("[1e999]") == 0);
    const Json json = Json::parse(R"({"a": [1]})");
    CHECK_THROWS_AS(json.at("b"), JsonError);
    CHECK_THROWS_AS(json.elements(), JsonError);
    CHECK_THROWS_AS(json.at("a").get<int>(), JsonError);
    CHECK_THROWS_AS(json.at("a").elements()[0].get<std::string>(), JsonError);
    CHECK(Json(-2147483648.0).get<int>() == -2147483647 - 1);
    CHECK_THROWS_AS(Json(2147483648.0).get<int>(), JsonError);
    CHECK_THROWS_AS(Json(0x1p64).get<std::uint64_t>(), JsonError);
    CHECK_THROWS_AS(Json(-1.0).get<std::size_t>(), JsonError);
}
