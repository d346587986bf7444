// Tests the files that `lockstep serve` reads, and its texts about a service.

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "lessons/page/html.hpp"
#include "lessons/page/lesson_page.hpp"
#include "lessons/page/terminal_text.hpp"
#include "lessons/tools/service_page.hpp"
#include "tests/catch.hpp"
#include "tests/refusal.hpp"

namespace lockstep::lessons {

namespace {

using test::refusal;
using test::says;

const std::string kModel = R"("model": "layers=2,hidden=32,heads=4,style=llama")";
const std::string kOne = R"("requests": [{"prompt": 5, "output": 3}])";

ServiceSettings read(const std::string& members) {
    return read_service("{" + members + "}", "a.json");
}

ExaminedService examined(const ServiceSettings& settings) {
    require_possible(settings);
    ExaminedService service{settings, holding_of(settings), {}};
    service.outcomes.push_back(served(settings, service.holding));
    return service;
}

std::string text_of(const Document& page) {
    std::string text;
    for (const std::string& line : lines_of(page, {80, false}))
        text += line + "\n";
    return text;
}

}  // namespace

TEST_CASE("a service's file sets values or leaves the defaults", "[lessons][serve]") {
    const ServiceSettings plain = read(kModel + "," + kOne);
    CHECK(plain.ranks() == 1);
    CHECK(plain.cluster.name == "h100");
    CHECK(plain.dtype == DType::bf16);
    CHECK(plain.page_rows == 16);
    CHECK(plain.reuse);
    CHECK(!plain.pages);
    CHECK(plain.rules.most_sequences == 64);
    CHECK(plain.limits.to_first == 0);
    const ServiceSettings full =
        read(kModel +
             R"(, "mesh": "dp=2,tp=4", "apart": true, "cluster": "a100", "dtype": "f32",
            "cache": {"pages": 9, "page_rows": 8, "reuse": false},
            "batch": {"sequences": 3, "rows": 7, "pieces": false, "continuous": false},
            "limits": {"first_token": 0.5, "token": 0.001},
            "requests": {"count": 6, "per_second": 2.5, "prompt": [3, 4], "output": 2,
                         "shared": 3, "seed": 8})");
    CHECK(full.ranks() == 16);
    CHECK(full.replicas() == 2);
    CHECK(full.ways() == 8);
    CHECK(full.cluster.name == "a100");
    CHECK(full.dtype == DType::f32);
    CHECK(full.options(9).cache.pages == 9);
    CHECK(full.options(9).cache.page_rows == 8);
    CHECK(!full.options(9).reuse);
    CHECK(full.rules.most_sequences == 3);
    CHECK(full.rules.most_rows == 7);
    CHECK(!full.rules.pieces);
    CHECK(!full.rules.continuous);
    CHECK(full.limits.to_first == kSecond / 2);
    CHECK(full.limits.per_token == kSecond / 1000);
    const auto requests = requests_of(full);
    REQUIRE(requests.size() == 6);
    for (const Request& request : requests) {
        CHECK(request.output == 2);
        CHECK((request.prompt.size() == 3 || request.prompt.size() == 4));
        CHECK(std::equal(request.prompt.begin(), request.prompt.begin() + 3,
                         requests[0].prompt.begin()));
    }
    // At twice the rate, the same requests arrive in half the time.
    CHECK(std::abs(requests_of(full, 5)[5].arrival * 2 - requests[5].arrival) <= 2);
}

TEST_CASE("requests of a list are answered in the order of arrivals",
          "[lessons][serve]") {
    const auto requests =
        requests_of(read(kModel +
                         R"(, "requests": [{"arrival": 2, "prompt": 1, "output": 1},
                          {"prompt": 2, "output": 1}, {"prompt": 3, "output": 1}])"));
    std::vector<std::int64_t> ids;
    ids.reserve(requests.size());
    for (const Request& request : requests)
        ids.push_back(request.id);
    CHECK(ids == std::vector<std::int64_t>{1, 2, 0});
    CHECK(requests[2].arrival == 2 * kSecond);
}

TEST_CASE("the example can be read, and fits", "[lessons][serve]") {
    const ServiceSettings settings =
        read_service(std::string(example_service()), "example");
    require_possible(settings);
    CHECK(settings.count() == 20);
    const ServiceHolding holding = holding_of(settings);
    CHECK(holding.all_that_fit);
    CHECK(holding.page_bytes ==
          16 * cache_bytes_of_token(*settings.sizes, settings.dtype) / 2);
}

TEST_CASE("a page describes a service", "[lessons][serve]") {
    const ExaminedService service = examined(
        read(kModel + "," + kOne + R"(, "limits": {"token": 1}, "dtype": "f32")"));
    const std::string text = text_of(service_page(service));
    CHECK_THAT(text, says("is on dp 1 of cluster h100: 1 replica of 1 device."));
    CHECK_THAT(text, says("requests within the limits"));
    CHECK_THAT(text, says("for each next token (TPOT)"));
    CHECK_THAT(text, says("weights"));
    CHECK(service.outcomes[0].report.tokens == 3);
    CHECK(service.outcomes[0].passes.passes == 3);
    CHECK(service.outcomes[0].passes.rows == 7);
    CHECK(service_chart_of(service, 0).panels.front().title == "a GPT on h100");
}

TEST_CASE("a lesson's page shows a service in its language", "[lessons][serve]") {
    const LessonPage page("a.md",
                          "# Title\n\nQuestion?\n\n## Step {#one}\n\n"
                          "{{picture served: who waits}}\n");
    Record record;
    Findings found(page, record);
    found.service("served", examined(read(kModel + "," + kOne)).outcomes[0].replicas[0]);
    const auto shown = [&](Language language) {
        return filled(page, page.sections().front().text, found, language);
    };
    CHECK_THAT(text_of(shown(Language::english)), says("who waits"));
    CHECK_THAT(text_of(shown(Language::english)), says("rows of a prompt"));
    CHECK_THAT(text_of(shown(Language::chinese)), says("提示的行"));
    CHECK_THAT(html_of(shown(Language::english), {}), says("aria-label=\"who waits\""));
}

TEST_CASE("an impossible service is refused with file and key",
          "[lessons][serve][errors]") {
    const auto said = [](const std::string& members) {
        return refusal([&] { require_possible(read(members)); });
    };
    CHECK(said(kOne + R"(, "modle": "x")") ==
          "a.json: modle is not known; did you mean model?");
    CHECK_THAT(said(kOne), says("a.json: model is missing; llama2-13b,"));
    CHECK(said(kModel) ==
          "a.json: requests is missing; a list of requests is expected, "
          "or a mix of them");
    CHECK_THAT(said(kModel + "," + kOne + R"(, "mesh": "pp=2")"),
               says("a.json: mesh: 'pp' is no axis of a service"));
    CHECK_THAT(said(kModel + "," + kOne + R"(, "mesh": "ep=2")"),
               says("a.json: a GPT that answers requests: there are 2 ranks along ep"));
    CHECK_THAT(refusal([] { read_service("{\n\"model\": }", "a.json"); }),
               says("a.json, line 2: this is not JSON"));
}

}  // namespace lockstep::lessons
