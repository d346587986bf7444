#include "src/comm/mesh.hpp"

#include <algorithm>
#include <utility>

#include "src/core/require.hpp"

namespace lockstep {

Mesh::Mesh(Communicator& world, std::vector<Axis> axes, SourceLine at)
    : world_(&world), shape_(std::move(axes), at) {
    require(shape_.ranks() == world.size(), at,
            "mesh: the product of the sizes of {} must be {}, the number of ranks of {}",
            shape_.text(), world.size(), world.name());
    for (const Axis& axis : shape_.axes()) {
        const std::vector<int> line = shape_.line(world.rank(), axis.name);
        const int coordinate = shape_.coordinate(world.rank(), axis.name);
        lines_.push_back(world.split(
            {line.front(), coordinate, axis.name, line, false, shape_.axis_texts()}, at));
    }
}

Communicator& Mesh::operator[](const std::string& axis) const {
    return *lines_[shape_.place_of(axis)];
}

Communicator& Mesh::plane(const std::vector<std::string>& axes, SourceLine at) {
    const std::vector<int> members = shape_.plane(world_->rank(), axes, at);
    if (axes.size() == 1) return (*this)[axes[0]];
    std::vector<std::size_t> places;
    places.reserve(axes.size());
    for (const std::string& axis : axes)
        places.push_back(shape_.place_of(axis));
    std::sort(places.begin(), places.end());
    const auto found = planes_.find(places);
    if (found != planes_.end()) return *found->second;

    std::string name;
    for (const std::size_t place : places)
        name += (name.empty() ? "" : " x ") + shape_.axes()[place].name;
    const SplitRequest request{members.front(), world_->rank(), name,
                               members,         false,          shape_.axis_texts()};
    return *planes_.emplace(places, world_->split(request, at)).first->second;
}

bool Mesh::spans(const Communicator& ranks, const std::string& axis) const {
    const std::size_t place = shape_.place_of(axis);
    if (lines_[place].get() == &ranks) return true;
    return std::any_of(planes_.begin(), planes_.end(), [&](const auto& plane) {
        return plane.second.get() == &ranks &&
               std::count(plane.first.begin(), plane.first.end(), place) > 0;
    });
}

}  // namespace lockstep
