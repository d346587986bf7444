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

Communicator& Mesh::plane(const std::vector<std::string>& axes, SourceLine at) {
    std::vector<bool> free(axes_.size());
    for (const std::string& axis : axes) {
        const std::size_t place = place_of(axis);
        require(!free[place], at, "mesh: a plane of {} twice", axis);
        free[place] = true;
    }
    if (axes.size() == 1) return (*this)[axes[0]];
    std::string name;
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < axes_.size(); ++i) {
        if (!free[i]) continue;
        name += (name.empty() ? "" : " x ") + axes_[i].name;
        places.push_back(i);
    }
    const auto found = planes_.find(places);
    if (found != planes_.end()) return *found->second;

    // Ranks of one plane are at one place along all other axes.
    const auto fixed = [&](int rank) {
        int color = 0, stride = world_->size();
        for (std::size_t i = 0; i < axes_.size(); ++i) {
            stride /= axes_[i].size;
            if (!free[i]) color += rank / stride % axes_[i].size * stride;
        }
        return color;
    };
    SplitRequest request{fixed(world_->rank()), world_->rank(), name, {}, false};
    for (int rank = 0; rank < world_->size(); ++rank)
        if (fixed(rank) == request.color) request.members.push_back(rank);
    return *planes_.emplace(places, world_->split(request, at)).first->second;
}

bool Mesh::spans(const Communicator& ranks, const std::string& axis) const {
    const std::size_t place = place_of(axis);
    if (lines_[place].get() == &ranks) return true;
    return std::any_of(planes_.begin(), planes_.end(), [&](const auto& plane) {
        return plane.second.get() == &ranks &&
               std::count(plane.first.begin(), plane.first.end(), place) > 0;
    });
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
