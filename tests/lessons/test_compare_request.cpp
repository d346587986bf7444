#include "lessons/runner/command.hpp"
#include "src/core/require.hpp"
#include "tests/catch.hpp"
#include "tests/message_of.hpp"

using namespace lockstep;
using namespace lockstep::lessons;
using namespace lockstep::test;

namespace {

using Typed = std::vector<std::string>;

BackendsRequest read(Typed words) {
    words.insert(words.begin(), {"compare", "some-lesson"});
    return std::get<BackendsRequest>(read_request(words));
}

std::string refusal(const Typed& words) {
    return message_of<UsageError>([&] { read_request(words); });
}

}  // namespace

TEST_CASE("compare --backends takes a lesson, two backends and the lesson's options",
          "[lessons]") {
    const BackendsRequest request =
        read({"--backends", "sim,cuda", "--ranks", "2", "--set", "a=b=c", "--set=d=1",
              "--text", "a file", "--bound", "1e-3", "--json", "--out", "here"});
    CHECK(request.slug == "some-lesson");
    CHECK(request.backends == std::array<std::string, 2>{"sim", "cuda"});
    CHECK(request.lesson_words ==
          Typed{"--ranks=2", "--set=a=b=c", "--set=d=1", "--text=a file"});
    CHECK(request.lesson_options.ranks == 2);
    CHECK(request.bound == 1e-3);
    CHECK(request.out == "here");
    CHECK(request.json);

    const BackendsRequest bare = read({"--backends=gpu,gpu"});
    CHECK(bare.backends == std::array<std::string, 2>{"gpu", "gpu"});
    CHECK(bare.lesson_words.empty());
    CHECK_FALSE(bare.bound.has_value());
    CHECK_FALSE(bare.out.has_value());
}

TEST_CASE("anything but two backends is refused", "[lessons][errors]") {
    for (const char* value :
         {"sim", "sim,", ",sim", "sim,tpu", "sim,cuda,nccl", "SIM,gpu"})
        CHECK(refusal({"compare", "x", "--backends", value}) ==
              "--backends " + std::string(value) +
                  ": two of sim, cuda, nccl and gpu are expected, as in sim,gpu");
}

TEST_CASE("a wrong option of the lesson is reported before anything runs",
          "[lessons][errors]") {
    CHECK(refusal({"compare", "x", "--backends", "sim,gpu", "--ranks", "0"}) ==
          "--ranks 0: a whole number from 1 to 16384 is expected");
    CHECK(refusal({"compare", "x", "--backends", "sim,gpu", "--set", "numerics=off"}) ==
          "--set numerics=off: then there are no numbers to compare");
    CHECK(refusal({"compare", "x", "--backends", "sim,gpu", "--backend", "sim"}) ==
          "unknown option --backend; did you mean --backends?");
    CHECK(refusal({"compare", "x", "y", "--backends", "sim,gpu"}) ==
          "'y' is one argument too many for lockstep compare");
    CHECK(refusal({"compare", "--backends", "sim,gpu"}) ==
          "SLUG is missing; see lockstep compare --help");
    CHECK(refusal({"compare", "x", "--backends"}) == "--backends: a value is missing");
    CHECK(refusal({"compare", "a", "b", "--ranks", "4"}) == "unknown option --ranks");
    CHECK(refusal({"compare", "a", "b", "--backend", "gpu"}) ==
          "unknown option --backend; did you mean --backends?");
}

TEST_CASE("help of compare shows both its forms", "[lessons]") {
    const std::string text =
        std::get<TextRequest>(read_request({"compare", "x", "--backends", "--help"}))
            .text;
    for (const char* part : {"Usage: lockstep compare DIR_A DIR_B",
                             "Usage: lockstep compare SLUG", "--seed"})
        CHECK(text.find(part) != std::string::npos);
}

TEST_CASE("doctor takes --json and nothing else", "[lessons]") {
    CHECK(std::get<DoctorRequest>(read_request({"doctor", "--json"})).json);
    CHECK_FALSE(std::get<DoctorRequest>(read_request({"doctor"})).json);
    CHECK(refusal({"doctor", "--fix"}) == "unknown option --fix");
    CHECK(refusal({"doctor", "me"}) ==
          "'me' is one argument too many for lockstep doctor");
}
