#include "src/report/mesh_picture.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace lockstep {

std::string slowest_axis(const MeshShape& shape) {
    for (const MeshShape::Axis& axis : shape.axes())
        if (axis.size > 1) return axis.name;
    return "";
}

MeshPicture MeshPicture::of(MeshShape shape, int per_node) {
    std::string coloured = slowest_axis(shape);
    return {"", std::move(shape), per_node, std::move(coloured)};
}

std::string MeshPicture::note() const {
    const int ranks = shape.ranks();
    const std::string devices = fmt::format("{} device{}", ranks, ranks == 1 ? "" : "s");
    if (nodes() == 1) return devices + ", 1 node";
    if (per_node == 1) return devices + ", each on its own node";
    const int last = ranks % per_node;
    return fmt::format("{}, {} nodes of {}", devices, nodes(), per_node) +
           (last == 0 ? "" : fmt::format(", the last one with {}", last));
}

std::string MeshPicture::places(int rank) const {
    std::string text;
    for (const MeshShape::Axis& axis : shape.axes())
        if (axis.size > 1)
            text += fmt::format("{}{} {}", text.empty() ? "" : " ", axis.name,
                                shape.coordinate(rank, axis.name));
    return text;
}

std::vector<std::string> MeshPicture::labels_of(int rank) const {
    if (labels.empty()) return {};
    std::vector<std::string> lines = labels[static_cast<std::size_t>(rank)];
    for (std::string& line : lines)
        line = said(line);
    return lines;
}

int MeshPicture::colour_place(int rank) const {
    return coloured.empty() ? 0 : shape.coordinate(rank, coloured);
}

}  // namespace lockstep
