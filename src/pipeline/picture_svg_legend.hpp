#pragma once

#include <string>
#include <vector>

#include "src/pipeline/picture_look.hpp"

namespace lockstep {

/// Swatches with their words, in lines from `left` to `right`.
class SvgLegend {
  public:
    SvgLegend(double left, double right, double top)
        : left_(left), right_(right), x_(left), y_(top) {}

    /// Several colours are swatches side by side.
    void add(const std::vector<std::string>& colours,
             const std::string& words);
    /// The kinds of computations and, where there are several, the chunks;
    /// of many chunks, the first and the last.
    void add(const ScheduleLook& look, int chunks);

    const std::string& svg() const { return svg_; }
    double bottom() const { return y_ + kLine; }

  private:
    static constexpr double kLine = 20;

    double left_;
    double right_;
    double x_;
    double y_;
    std::string svg_;
};

}  // namespace lockstep
