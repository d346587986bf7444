// Tests the data of the book's laboratory of the ring.

#include <algorithm>

#include "lessons/book/laboratory_runs.hpp"
#include "tests/catch.hpp"

using namespace lockstep;
using namespace lockstep::lessons;

namespace {

const Json& rings() {
    static const Json runs = ring_runs();
    return runs.at("rings");
}

const Json& run_called(const Json& ring, const std::string& name) {
    for (const Json& run : ring.at("runs").elements())
        if (run.at("name").is(name)) return run;
    throw std::logic_error("no run is called " + name);
}

std::string fault_of(const Json& run) {
    const Json& fault = run.at("fault");
    return fault.is_null() ? "" : fault.at("fault").get<std::string>();
}

/// By device and by chunk: the chunk's value, and the text of what it is made of.
using State = std::vector<std::vector<std::pair<double, std::string>>>;

void change(State& state, const Json& changes) {
    for (const Json& changed : changes.elements()) {
        const auto& [device, number, value, made_of] =
            std::tie(changed.elements()[0], changed.elements()[1], changed.elements()[2],
                     changed.elements()[3]);
        state[device.get<std::size_t>()][number.get<std::size_t>()] = {
            value.get<double>(), made_of.dump()};
    }
}

State end_of(const Json& ring, const Json& run) {
    const auto n = ring.at("devices").get<std::size_t>();
    State state(n, std::vector<std::pair<double, std::string>>(n));
    change(state, ring.at("first"));
    for (const Json& step : run.at("steps").elements())
        change(state, step.at("changes"));
    return state;
}

/// The end state: on every device, chunk c is (c + 1) 11…1, with one digit from each
/// device.
State sums(std::size_t n) {
    std::vector<std::pair<double, std::string>> row;
    for (std::size_t c = 0; c < n; ++c) {
        const std::string ones(n, '1');
        row.emplace_back(static_cast<double>(c + 1) * std::stod(ones),
                         Json(Json::Object{{std::to_string(c), ones}}).dump());
    }
    return State(n, row);
}

}  // namespace

TEST_CASE("in rings of 2 to 6 devices, every device ends with all sums") {
    REQUIRE(rings().size() == 5);
    std::size_t n = 2;
    for (const Json& ring : rings().elements()) {
        CHECK(ring.at("devices").get<std::size_t>() == n);
        const Json& right = run_called(ring, "right");
        CHECK(right.at("steps").size() == 2 * (n - 1));
        CHECK(end_of(ring, right) == sums(n));
        CHECK(fault_of(right).empty());
        ++n;
    }
}

TEST_CASE("each device of a ring sends 2(n-1)/n of the buffer") {
    for (const Json& ring : rings().elements()) {
        const auto n = ring.at("devices").get<std::int64_t>();
        const auto whole = ring.at("bytes").get<std::int64_t>();
        for (const Json& run : ring.at("runs").elements()) {
            std::int64_t step = 0;
            for (const Json& here : run.at("steps").elements()) {
                ++step;
                for (const Json& sent : here.at("bytes").elements())
                    CHECK(sent.get<std::int64_t>() == step * whole / n);
            }
            CHECK(step == (run.at("name").is("group") ? 0 : 2 * (n - 1)));
        }
    }
}

TEST_CASE("a missing wait is reported where a chunk is read too early") {
    for (const Json& ring : rings().elements()) {
        const auto n = ring.at("devices").get<std::size_t>();
        for (std::size_t step = 1; step <= 2 * (n - 1); ++step) {
            const Json& run = run_called(ring, std::to_string(step));
            const bool adds = step < n, is_last = step == 2 * (n - 1);
            CHECK(fault_of(run) == (adds ? "F16" : is_last ? "F19" : ""));
            CHECK((end_of(ring, run) == sums(n)) == (!adds && !is_last));
            std::size_t place = 0;
            for (const Json& here : run.at("steps").elements())
                CHECK(here.at("early").size() == (++place == step && adds ? n : 0));
        }
        CHECK(fault_of(run_called(ring, "all")) == "F16");
    }
}

TEST_CASE("a ring that sends before it receives waits in a circle of all devices") {
    for (const Json& ring : rings().elements()) {
        const Json& run = run_called(ring, "group");
        CHECK(fault_of(run) == "F11");
        std::size_t device = 0;
        for (const Json& wait : run.at("fault").at("waits").elements()) {
            CHECK(wait.at("from").elements()[0].get<std::size_t>() == device);
            CHECK(wait.at("to").elements()[0].get<std::size_t>() ==
                  (device + 1) % ring.at("devices").get<std::size_t>());
            ++device;
        }
        CHECK(device == ring.at("devices").get<std::size_t>());
    }
}

TEST_CASE("lines that a diagnosis names are in the program that is shown") {
    const Json runs = ring_runs();
    const Json& program = runs.at("program");
    const std::string code = program.at("code").get<std::string>();
    const auto first = program.at("line").get<std::int64_t>();
    const auto last = first + std::count(code.begin(), code.end(), '\n');
    for (const Json& ring : runs.at("rings").elements())
        for (const Json& run : ring.at("runs").elements()) {
            if (run.at("fault").is_null()) continue;
            for (const Json& line : run.at("fault").at("lines").elements()) {
                CHECK(line.get<std::int64_t>() >= first);
                CHECK(line.get<std::int64_t>() <= last);
            }
        }
}

TEST_CASE("the data of the ring are small") {
    CHECK(ring_runs().dump().size() < 150'000);
}
