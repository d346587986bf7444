#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "lessons/grader/judging_process.hpp"
#include "src/core/require.hpp"
#include "tests/catch.hpp"

using namespace lockstep;
using namespace lockstep::lessons;
using namespace std::chrono_literals;

namespace {

using Works = std::vector<std::function<Judgement()>>;

JudgingProcess::Limits limits(std::chrono::seconds all = 1000s) {
    return {JudgingProcess::Clock::now() + all, 1000, 1000};
}

JudgingProcess::Work one_of(Works works) {
    return [works = std::move(works)](std::size_t i) { return works.at(i)(); };
}

Judgement passed(const std::string& measured) {
    return {Mark::passed, "", measured, ""};
}

/// A judgement that counts its own calls.
std::function<Judgement()> counting() {
    return
        [count = std::make_shared<int>(0)] { return passed(std::to_string(++*count)); };
}

[[noreturn]] Judgement crash(int signal) {
    std::signal(signal, SIG_DFL);  // the tests' own handler would print
    ::raise(signal);
    std::abort();
}

bool has_children() {
    return ::waitpid(-1, nullptr, WNOHANG) >= 0 || errno != ECHILD;
}

}  // namespace

TEST_CASE("A judgement returns unchanged, and the process keeps its memory", "[grader]") {
    Judgement given{Mark::not_written, std::string("a\0b", 3), "\xff", ""};
    const auto count = counting();
    JudgingProcess process(one_of({[&] { return given; }, count, count}), limits());
    const Judgement got = process.judge(0);
    CHECK(got.mark == given.mark);
    CHECK(got.asked == given.asked);
    CHECK(got.measured == given.measured);
    CHECK(got.said.empty());
    CHECK(process.judge(1).measured == "1");
    CHECK(process.judge(2).measured == "2");
    CHECK(count().measured == "1");  // the counter of this process
}

TEST_CASE("If the process ends, only the criterion that it judged fails", "[grader]") {
    const auto count = counting();
    JudgingProcess process(one_of({count, [] { return crash(SIGSEGV); }, count,
                                   []() -> Judgement { ::_exit(7); }, count}),
                           limits());
    CHECK(process.judge(0).measured == "1");
    const Judgement crashed = process.judge(1);
    CHECK(crashed.mark == Mark::failed);
    CHECK(crashed.said ==
          "the grader could not judge this: the simulator ended by signal "
          "11 (Segmentation fault)");
    CHECK(process.judge(2).measured == "1");
    CHECK(process.judge(3).said ==
          "the grader could not judge this: the simulator ended "
          "by itself (exit status 7)");
    CHECK(process.judge(4).mark == Mark::passed);
}

TEST_CASE("If the process is killed from outside, the grading stops", "[grader]") {
    JudgingProcess process(one_of({[] { return crash(SIGKILL); }}), limits());
    CHECK_THROWS_WITH(process.judge(0),
                      Catch::Matchers::ContainsSubstring("was killed: perhaps"));
}

TEST_CASE("A criterion that computes for ever fails, and all that use up the time",
          "[grader]") {
    const auto loop = []() -> Judgement {
        for (volatile bool for_ever = true; for_ever;) {
        }
        return passed("");
    };
    const auto count = counting();
    JudgingProcess::Limits short_ones = limits();
    short_ones.one_seconds = 0.5;
    short_ones.all_seconds = 0.75;
    JudgingProcess process(one_of({loop, count, loop, count}), short_ones);
    const Judgement late = process.judge(0);
    CHECK(late.mark == Mark::failed);
    CHECK(late.said ==
          "the grader could not judge this: it kept the grader busy for more "
          "than 0.5 s");
    CHECK(process.judge(1).mark == Mark::passed);
    CHECK(process.judge(2).mark == Mark::failed);
    const Judgement last = process.judge(3);
    CHECK(last.mark == Mark::failed);
    CHECK(last.said ==
          "the criteria before kept the grader busy for 0.75 s, more than all "
          "together may");
}

TEST_CASE("A machine without processor time costs no points", "[grader]") {
    const auto sleep = []() -> Judgement {
        for (;;)
            ::pause();
    };
    JudgingProcess process(one_of({sleep}), limits(1s));
    CHECK_THROWS_WITH(process.judge(0),
                      Catch::Matchers::ContainsSubstring("too slow or too busy"));
}

TEST_CASE("A criterion that asks for too much memory fails", "[grader]") {
    static constexpr std::size_t kPart = std::size_t{300} << 20;
    const auto kept = std::make_shared<std::vector<std::vector<char>>>();
    const auto keep = [kept] {
        kept->emplace_back(kPart);
        return passed(std::to_string(kept->size()));
    };
    JudgingProcess process(one_of({keep, keep, keep}), limits());
    CHECK(process.judge(0).measured == "1");
    const Judgement greedy = process.judge(1);
    CHECK(greedy.mark == Mark::failed);
    CHECK(greedy.said ==
          "the grader could not judge this: it asks the simulator for too much memory");
    CHECK(process.judge(2).measured == "1");  // the killed process's memory is lost
}

TEST_CASE("An error of the grader itself is thrown to its caller", "[grader]") {
    JudgingProcess process(
        one_of({[]() -> Judgement { throw MissingError("no kit"); },
                []() -> Judgement {
                    throw std::system_error(EAGAIN, std::generic_category(), "no fork");
                },
                []() -> Judgement { throw std::runtime_error("odd"); }}),
        limits());
    CHECK_THROWS_MATCHES(process.judge(0), MissingError,
                         Catch::Matchers::Message("no kit"));
    CHECK_THROWS_MATCHES(
        process.judge(1), MissingError,
        Catch::Matchers::Message("no fork: Resource temporarily unavailable"));
    CHECK(process.judge(2).said == "the grader could not judge this: odd");
}

TEST_CASE("The judging process ends with its owner", "[grader]") {
    {
        JudgingProcess process(one_of({counting()}), limits());
        process.judge(0);
        CHECK(has_children());
    }
    CHECK_FALSE(has_children());
}
