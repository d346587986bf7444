#pragma once

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>

#include "src/core/host_tensor.hpp"
#include "src/core/source_line.hpp"

namespace lockstep {

/// A failed check of a public test throws this: a sentence with the line of the check.
class CheckFailed : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// Runs the checks of an assignment's test.cpp, and prints the result of each:
///
///     PublicTest test;
///     test.check("a1.1 reduce_scatter, 4 ranks", [] { expect_close(got, expected); });
///     return test.finish();
///
/// A check passes if its body returns. Functions that are not written yet are counted
/// separately. A mistake that the simulator finds is shown with its explanation. A check
/// that computes for 20 seconds ends the program. Clusters that are made in checks look
/// for every mistake, unless LOCKSTEP_CHECK says otherwise.
class PublicTest {
  public:
    PublicTest();

    void check(const std::string& name, const std::function<void()>& body);
    /// Prints the counts, and names the first check that did not pass. Returns the
    /// program's exit status: 0 if all passed.
    int finish() const;

  private:
    void failed(const std::string& name, const std::string& mark,
                const std::string& text);

    int passed_ = 0;
    int failed_ = 0;
    int not_written_ = 0;
    std::string first_;  ///< the first check that did not pass
};

// Each throws CheckFailed.

/// Expects the same shape, and elements that differ at most by the rounding of f64 sums
/// that are added up in another order. NaN is never close.
void expect_close(const HostTensor& got, const HostTensor& expected,
                  const std::string& what, SourceLine at = SourceLine::here());
void expect_equal(std::int64_t got, std::int64_t expected, const std::string& what,
                  SourceLine at = SourceLine::here());
void expect(bool condition, const std::string& sentence,
            SourceLine at = SourceLine::here());

}  // namespace lockstep
