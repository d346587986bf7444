#include "src/comm/mesh.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

#include <fmt/format.h>

#include "src/core/require.hpp"

namespace lockstep {

namespace {

/// "pp 2 x dp 2 x tp 4".
std::string axes_text(const std::vector<Mesh::Axis>& axes) {
    std::string text;
    for (const Mesh::Axis& axis : axes)
        text += fmt::format("{}{} {}", text.empty() ? "" : " x ", axis.name, axis.size);
    return text;
}

}  // namespace

Mesh::Mesh(Communicator& world, std::vector<Axis> axes, SourceLine at)
    : world_(&world), axes_(std::move(axes)) {
    check_axes(at);
    int stride = world.size();
    for (const Axis& axis : axes_) {
        stride /= axis.size;
        const int coordinate = world.rank() / stride % axis.size;
        const int first = world.rank() - coordinate * stride;
        SplitRequest request{first, coordinate, axis.name, {}, false};
        for (int i = 0; i < axis.size; ++i)
            request.members.push_back(first + i * stride);
        lines_.push_back(world.split(request, at));
    }
}

void Mesh::check_axes(SourceLine at) const {
    std::int64_t product = 1;
    for (std::size_t i = 0; i < axes_.size(); ++i) {
        const Axis& axis = axes_[i];
        require(!axis.name.empty(), at, "mesh: axis number {} has no name", i);
        require(axis.size >= 1, at, "mesh: axis {} has size {}, expected 1 or more",
                axis.name, axis.size);
        const auto same = [&](const Axis& other) { return other.name == axis.name; };
        require(std::count_if(axes_.begin(), axes_.end(), same) == 1, at,
                "mesh: there are two axes {}", axis.name);
        // Beyond the world's size no product comes back to it.
        if (product <= world_->size()) product *= axis.size;
    }
    require(product == world_->size(), at, [&] {
        return fmt::format("mesh: the sizes of {} must multiply to the {} ranks of {}",
                           axes_.empty() ? std::string("no axes") : axes_text(axes_),
                           world_->size(), world_->name());
    });
}

std::size_t Mesh::place_of(const std::string& axis) const {
    const auto found =
        std::find_if(axes_.begin(), axes_.end(),
                     [&](const Axis& candidate) { return candidate.name == axis; });
    require(found != axes_.end(), [&] {
        return fmt::format("mesh: {} is no axis of {}", axis, axes_text(axes_));
    });
    return static_cast<std::size_t>(found - axes_.begin());
}

Communicator& Mesh::operator[](const std::string& axis) const {
    return *lines_[place_of(axis)];
}

int Mesh::coordinate(const std::string& axis) const {
    return (*this)[axis].rank();
}

int Mesh::size(const std::string& axis) const {
    return axes_[place_of(axis)].size;
}

bool Mesh::has(const std::string& axis) const {
    return std::any_of(axes_.begin(), axes_.end(),
                       [&](const Axis& candidate) { return candidate.name == axis; });
}

}  // namespace lockstep
