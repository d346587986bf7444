#include "src/report/mesh_layout.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

namespace lockstep {

namespace {

int runs_of(int size, int run) {
    return (size + run - 1) / run;
}

/// Returns the cost of a cut: 0 without a cut, more if the last run is shorter.
double cost_of_cut(int size, int run) {
    constexpr double kEven = 0.7;
    constexpr double kUneven = 1.4;
    if (run == 1 || run == size) return 0;
    return size % run == 0 ? kEven : kUneven;
}

}  // namespace

MeshLayout::MeshLayout(const MeshShape& shape, const Room& room) {
    for (const MeshShape::Axis& axis : shape.axes())
        if (axis.size > 1) axes_.push_back(axis);
    if (axes_.empty()) axes_.push_back({"", 1});
    const int most = std::max(room.columns, 1);
    double least = std::numeric_limits<double>::infinity();
    int fast = 1;
    for (std::size_t cut = axes_.size(); cut-- > 0 && fast <= most;) {
        const int size = axes_[cut].size;
        const int slow = std::max(shape.ranks() / (size * fast), 1);
        for (int run = 1; run <= std::min(size, most / fast); ++run) {
            const int rows = slow * runs_of(size, run);
            const double ratio = (room.column * run * fast) / (room.row * rows);
            const double cost =
                std::abs(std::log(ratio / room.ratio)) + cost_of_cut(size, run);
            if (cost >= least) continue;
            least = cost;
            cut_ = cut;
            run_ = run;
            fast_ = fast;
            rows_ = rows;
            columns_ = run * fast;
        }
        fast *= size;
    }
}

int MeshLayout::rank_at(int row, int column) const {
    const int size = axes_[cut_].size;
    const int runs = runs_of(size, run_);
    const int place = row % runs * run_ + column / fast_;
    if (place >= size) return -1;
    return (row / runs * size + place) * fast_ + column % fast_;
}

std::vector<std::string> MeshLayout::row_axes() const {
    std::vector<std::string> names;
    const std::size_t count = cut_ + (run_ < axes_[cut_].size ? 1 : 0);
    for (std::size_t i = 0; i < count; ++i)
        names.push_back(axes_[i].name);
    return names;
}

std::vector<std::string> MeshLayout::row_places(int row) const {
    const int size = axes_[cut_].size;
    const int runs = runs_of(size, run_);
    std::vector<std::string> places(row_axes().size());
    if (run_ < size) {
        const int first = row % runs * run_;
        const int last = std::min(first + run_, size) - 1;
        places[cut_] =
            first == last ? std::to_string(first) : fmt::format("{}–{}", first, last);
    }
    int slow = row / runs;
    for (std::size_t i = cut_; i-- > 0;) {
        places[i] = std::to_string(slow % axes_[i].size);
        slow /= axes_[i].size;
    }
    return places;
}

std::vector<std::string> MeshLayout::column_axes() const {
    std::vector<std::string> names;
    const bool whole = run_ == axes_[cut_].size && run_ > 1;
    for (std::size_t i = whole ? cut_ : cut_ + 1; i < axes_.size(); ++i)
        names.push_back(axes_[i].name);
    return names;
}

int MeshLayout::columns_a_place(const std::string& axis) const {
    int columns = 1;
    for (std::size_t i = axes_.size(); i-- > 0 && axes_[i].name != axis;)
        columns *= axes_[i].size;
    return columns;
}

}  // namespace lockstep
