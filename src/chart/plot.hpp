#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// Curves of values from 0 on, over a logarithmic axis of numbers of bytes.
struct Plot {
    struct Curve {
        std::string name;
        std::vector<std::pair<double, double>> points;  ///< bytes, value; by bytes
    };
    std::string title;
    std::string unit;  ///< of the values: "GB/s"
    std::vector<Curve> curves;
};

/// Draws plots below each other, as a standalone SVG.
std::string plots_svg(const std::vector<Plot>& plots);

/// Draws a plot in `width` columns. Each curve has a letter, from A. Where several curves
/// pass one place, the first one is shown.
std::string plot_text(const Plot& plot, int width);

}  // namespace lockstep
