#include "src/course/public_test.hpp"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <sys/time.h>
#include <unistd.h>

#include <fmt/format.h>

#include "src/core/require.hpp"
#include "src/course/not_written.hpp"
#include "src/run/diagnosis.hpp"

namespace lockstep {

namespace {

/// The largest accepted difference, relative to the largest expected value (or to 1).
constexpr double kNear = 1e-10;

/// True once the program's tests have ended; exit() may end the program earlier. There
/// is only one PublicTest.
bool finished = false;

/// Ends the program if a check takes too long.
class Alarm {
  public:
    Alarm() {
        std::signal(SIGPROF, [](int) {
            constexpr std::string_view kText =
                "FAILED\nnot done after 20 seconds of computing: is there a loop that "
                "never ends? The checks after this one were not run.\n";
            [[maybe_unused]] const auto written =
                ::write(STDOUT_FILENO, kText.data(), kText.size());
            ::_exit(1);
        });
        set(kSeconds);
    }
    ~Alarm() { set(0); }
    Alarm(const Alarm&) = delete;
    Alarm& operator=(const Alarm&) = delete;

  private:
    static constexpr int kSeconds = 20;

    static void set(int seconds) {
        const itimerval after{{}, {seconds, 0}};
        ::setitimer(ITIMER_PROF, &after, nullptr);
    }
};

[[noreturn]] void fail(const std::string& sentence, SourceLine at) {
    throw CheckFailed(fmt::format("{}: {}", at.text(), sentence));
}

}  // namespace

PublicTest::PublicTest() {
    ::setenv("LOCKSTEP_CHECK", "full", 0);
    // A program that ends before its last test has ended must fail.
    std::atexit([] {
        if (finished) return;
        fmt::print("the program ended before its tests did\n");
        std::fflush(stdout);
        std::_Exit(1);
    });
}

void PublicTest::check(const std::string& name, const std::function<void()>& body) {
    fmt::print("{}: ", name);
    std::fflush(stdout);  // in case the check never ends
    try {
        const Alarm alarm;
        body();
        ++passed_;
        fmt::print("passed\n");
    } catch (const NotWritten& missing) {
        ++not_written_;
        failed(name, "not written", missing.what());
    } catch (const FaultError& mistake) {
        ++failed_;
        failed(name, "FAILED", mistake.diagnosis().text());
    } catch (const std::exception& error) {
        ++failed_;
        failed(name, "FAILED", error.what());
    } catch (...) {
        ++failed_;
        failed(name, "FAILED", "it threw something that is not a std::exception");
    }
}

void PublicTest::failed(const std::string& name, const std::string& mark,
                        const std::string& text) {
    fmt::print("{}\n{}\n", mark, text);
    if (first_.empty()) first_ = name;
}

int PublicTest::finish() const {
    finished = true;
    fmt::print("{} passed, {} failed, {} not written\n", passed_, failed_, not_written_);
    if (first_.empty()) return 0;
    fmt::print("First: {}\n", first_);
    return 1;
}

void expect_close(const HostTensor& got, const HostTensor& expected,
                  const std::string& what, SourceLine at) {
    if (got.shape() != expected.shape())
        fail(fmt::format("{} has shape {}, expected {}", what, got.shape().text(),
                         expected.shape().text()),
             at);
    double largest = 1;
    for (std::int64_t i = 0; i < expected.elements(); ++i)
        largest = std::max(largest, std::abs(expected.at(i)));
    for (std::int64_t i = 0; i < expected.elements(); ++i)
        if (!(std::abs(got.at(i) - expected.at(i)) <= kNear * largest))
            fail(fmt::format("{}: element {} is {}, expected {}", what, i, got.at(i),
                             expected.at(i)),
                 at);
}

void expect_equal(std::int64_t got, std::int64_t expected, const std::string& what,
                  SourceLine at) {
    if (got != expected)
        fail(fmt::format("{}: {}, expected {}", what, got, expected), at);
}

void expect(bool condition, const std::string& sentence, SourceLine at) {
    if (!condition) fail(sentence, at);
}

}  // namespace lockstep
