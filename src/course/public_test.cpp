#include "src/course/public_test.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include <fmt/format.h>

#include "src/core/require.hpp"
#include "src/course/not_written.hpp"
#include "src/report/diagnosis.hpp"

namespace lockstep {

namespace {

/// Of the largest value that is expected.
constexpr double kNear = 1e-10;

[[noreturn]] void fail(const std::string& sentence, SourceLine at) {
    throw CheckFailed(fmt::format("{}: {}", at.text(), sentence));
}

}  // namespace

void PublicTest::check(const std::string& name, const std::function<void()>& body) {
    try {
        body();
        ++passed_;
        fmt::print("passed       {}\n", name);
    } catch (const NotWritten& missing) {
        ++not_written_;
        failed(name, "not written", missing.what());
    } catch (const FaultError& mistake) {
        ++failed_;
        failed(name, "FAILED", mistake.diagnosis().text());
    } catch (const std::exception& error) {
        ++failed_;
        failed(name, "FAILED", error.what());
    }
}

void PublicTest::failed(const std::string& name, const std::string& mark,
                        const std::string& text) {
    fmt::print("{:<12} {}\n{}\n", mark, name, text);
    if (first_.empty()) first_ = name;
}

int PublicTest::finish() const {
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
