#pragma once

#include <string>
#include <vector>

#include "lessons/page/findings.hpp"

namespace lockstep::lessons {

/// Loss curves of several runs.
struct Curves {
    std::vector<std::string> names;
    std::vector<std::vector<double>> losses;

    void add(const std::string& name, std::vector<double> curve) {
        names.push_back(name);
        losses.push_back(std::move(curve));
    }
    /// Returns the largest difference from the first curve, over all curves and steps;
    /// NaN if any value is NaN.
    double widest_gap() const;
    /// Adds rows to the page's `list`, one for each shown step: "step", and each curve's
    /// loss under the curve's name.
    void give(Findings& found, const std::string& list) const;
};

}  // namespace lockstep::lessons
