#pragma once

#include <string>
#include <vector>

#include "lessons/page/findings.hpp"

namespace lockstep::lessons {

/// Loss curves of several runs, side by side.
struct Curves {
    std::vector<std::string> names;
    std::vector<std::vector<double>> losses;

    void add(const std::string& name, std::vector<double> curve) {
        names.push_back(name);
        losses.push_back(std::move(curve));
    }
    /// Returns the largest difference of any curve from the first at any step; NaN if
    /// there is one.
    double widest_gap() const;
    /// Gives a few steps of each: rows of `list`, with "step" and each curve's name.
    void give(Findings& found, const std::string& list) const;
};

}  // namespace lockstep::lessons
