#include "src/comm/mesh_shape.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <utility>

#include <fmt/format.h>

#include "src/core/require.hpp"
#include "src/text/names.hpp"

namespace lockstep {

namespace {

constexpr std::int64_t kMostRanks = std::int64_t{1} << 30;

std::string text_of(const std::vector<MeshShape::Axis>& axes) {
    if (axes.empty()) return "no axes";
    std::string text;
    for (const MeshShape::Axis& axis : axes)
        text += fmt::format("{}{} {}", text.empty() ? "" : " x ", axis.name, axis.size);
    return text;
}

/// Returns why a mesh cannot have these axes; empty if it can.
std::string problem_of(const std::vector<MeshShape::Axis>& axes) {
    std::int64_t product = 1;
    for (std::size_t i = 0; i < axes.size(); ++i) {
        const MeshShape::Axis& axis = axes[i];
        if (axis.name.empty()) return fmt::format("axis number {} has no name", i);
        if (axis.size < 1)
            return fmt::format("axis {} has size {}, expected 1 or more", axis.name,
                               axis.size);
        const auto same = [&](const MeshShape::Axis& other) {
            return other.name == axis.name;
        };
        if (std::count_if(axes.begin(), axes.end(), same) > 1)
            return "there are two axes " + axis.name;
        product *= axis.size;
        if (product > kMostRanks)
            return fmt::format("the sizes of {} multiply to more than {} ranks",
                               text_of(axes), kMostRanks);
    }
    return "";
}

}  // namespace

MeshShape::MeshShape(std::vector<Axis> axes, SourceLine at) : axes_(std::move(axes)) {
    const std::string problem = problem_of(axes_);
    require(problem.empty(), at, "mesh: {}", problem);
    for (const Axis& axis : axes_)
        ranks_ *= axis.size;
    int stride = ranks_;
    for (const Axis& axis : axes_)
        strides_.push_back(stride /= axis.size);
}

bool MeshShape::has(const std::string& axis) const {
    return std::any_of(axes_.begin(), axes_.end(),
                       [&](const Axis& candidate) { return candidate.name == axis; });
}

std::size_t MeshShape::place_of(const std::string& axis) const {
    const auto found =
        std::find_if(axes_.begin(), axes_.end(),
                     [&](const Axis& candidate) { return candidate.name == axis; });
    require(found != axes_.end(),
            [&] { return fmt::format("mesh: {} is no axis of {}", axis, text()); });
    return static_cast<std::size_t>(found - axes_.begin());
}

int MeshShape::coordinate(int rank, const std::string& axis) const {
    const std::size_t place = place_of(axis);
    return rank / strides_[place] % axes_[place].size;
}

std::vector<int> MeshShape::coordinates(int rank) const {
    std::vector<int> places;
    places.reserve(axes_.size());
    for (std::size_t i = 0; i < axes_.size(); ++i)
        places.push_back(rank / strides_[i] % axes_[i].size);
    return places;
}

std::vector<int> MeshShape::plane(int rank, const std::vector<std::string>& axes,
                                  SourceLine at) const {
    std::vector<bool> free(axes_.size());
    for (const std::string& axis : axes) {
        const std::size_t place = place_of(axis);
        require(!free[place], at, "mesh: axis {} is named twice for a plane", axis);
        free[place] = true;
    }
    // Start with the first rank of the plane. Then add all places along each free axis,
    // the slowest axis first, so that ranks ascend.
    for (std::size_t i = 0; i < axes_.size(); ++i)
        if (free[i]) rank -= rank / strides_[i] % axes_[i].size * strides_[i];
    std::vector<int> members{rank};
    for (std::size_t i = 0; i < axes_.size(); ++i) {
        if (!free[i]) continue;
        std::vector<int> wider;
        wider.reserve(members.size() * static_cast<std::size_t>(axes_[i].size));
        for (const int member : members)
            for (int place = 0; place < axes_[i].size; ++place)
                wider.push_back(member + place * strides_[i]);
        members = std::move(wider);
    }
    return members;
}

std::vector<std::vector<int>> MeshShape::planes(const std::vector<std::string>& axes,
                                                SourceLine at) const {
    std::vector<std::vector<int>> all;
    std::vector<bool> seen(static_cast<std::size_t>(ranks_));
    for (int rank = 0; rank < ranks_; ++rank) {
        if (seen[static_cast<std::size_t>(rank)]) continue;
        all.push_back(plane(rank, axes, at));
        for (const int member : all.back())
            seen[static_cast<std::size_t>(member)] = true;
    }
    return all;
}

std::string MeshShape::text() const {
    return text_of(axes_);
}

std::vector<std::string> MeshShape::axis_texts() const {
    std::vector<std::string> texts;
    texts.reserve(axes_.size());
    for (const Axis& axis : axes_)
        texts.push_back(fmt::format("{} {}", axis.name, axis.size));
    return texts;
}

namespace {

bool is_axis_name(std::string_view name) {
    constexpr std::size_t kLongest = 16;
    const auto is_fine = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
               (c >= '0' && c <= '9') || c == '-' || c == '_';
    };
    return !name.empty() && name.size() <= kLongest &&
           std::all_of(name.begin(), name.end(), is_fine);
}

}  // namespace

MeshShape read_mesh_shape(std::string_view text) {
    std::vector<MeshShape::Axis> axes;
    for (const std::string& word : split_at_commas(text)) {
        const std::size_t equals = word.find('=');
        const std::string digits =
            equals == std::string::npos ? "" : word.substr(equals + 1);
        int size = 0;
        const char* end = digits.data() + digits.size();
        const auto read = std::from_chars(digits.data(), end, size);
        require(read.ec != std::errc::result_out_of_range,
                "'{}': the size of an axis is expected to be at most {}", word,
                kMostRanks);
        require(!digits.empty() && read.ec == std::errc{} && read.ptr == end,
                "'{}' is no axis of a mesh; NAME=SIZE is expected, separated by commas, "
                "as in pp=2,dp=2,tp=4",
                word);
        const std::string name = word.substr(0, equals);
        require(
            is_axis_name(name),
            "'{}' is no axis of a mesh; its name is expected to have 1 to 16 letters, "
            "digits, - and _",
            word);
        axes.push_back({name, size});
    }
    const std::string problem = problem_of(axes);
    require(problem.empty(), "{}: {}", text, problem);
    return MeshShape(std::move(axes));
}

}  // namespace lockstep
