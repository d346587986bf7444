#include "lessons/runner/curves.hpp"

#include <algorithm>
#include <cmath>

#include "lessons/runner/lesson.hpp"

namespace lockstep::lessons {

double Curves::widest_gap() const {
    double widest = 0;
    for (const std::vector<double>& curve : losses)
        for (std::size_t step = 0; step < curve.size(); ++step) {
            const double here = std::abs(curve[step] - losses.front()[step]);
            if (std::isnan(here)) return here;
            widest = std::max(widest, here);
        }
    return widest;
}

void Curves::give(Findings& found, const std::string& list) const {
    for (const std::size_t step : shown_steps(losses.front().size())) {
        Findings& row = found.row(list);
        row.give("step", step + 1);
        for (std::size_t curve = 0; curve < losses.size(); ++curve)
            row.give(names[curve], Figure::decimals(losses[curve][step], 3));
    }
}

}  // namespace lockstep::lessons
