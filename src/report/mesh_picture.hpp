#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/chart/svg.hpp"
#include "src/chart/text.hpp"
#include "src/comm/mesh_shape.hpp"

namespace lockstep {

/// A picture of a mesh of devices, as data, like a chart. Each device is a box with its
/// rank and its places along the axes. Frames around boxes are nodes.
struct MeshPicture {
    std::string title;
    MeshShape shape;
    int per_node = 8;      ///< devices per node; a node's ranks are consecutive
    std::string coloured;  ///< places along this axis have colours; empty: one colour
    /// Short lines on each device's box, by rank, such as what it holds; may be empty.
    /// These lines are left out if there are too many boxes.
    std::vector<std::vector<std::string>> labels{};
    int marked = -1;  ///< this rank is highlighted; -1: none
    /// Translates words of the picture for its reader; null for English.
    std::string (*translate)(std::string_view english) = nullptr;

    /// Returns the picture of a mesh, coloured along the slowest axis that has more than
    /// one rank.
    static MeshPicture of(MeshShape shape, int per_node);

    std::string said(std::string_view english) const {
        return translate ? translate(english) : std::string(english);
    }
    int node_of(int rank) const { return rank < 0 ? -1 : rank / per_node; }
    int nodes() const { return (shape.ranks() + per_node - 1) / per_node; }
    /// "16 devices, 2 nodes of 8".
    std::string note() const;
    /// "pp 0 dp 1 tp 0": the rank's places along axes with more than one rank.
    std::string places(int rank) const;
    /// Returns the lines on the rank's box, translated.
    std::vector<std::string> labels_of(int rank) const;
    /// Returns the rank's place along the coloured axis; 0 if there is none.
    int colour_place(int rank) const;
};

/// Returns the axis along which a mesh is coloured by default: the slowest axis that has
/// more than one rank; empty if there is none.
std::string slowest_axis(const MeshShape& shape);

/// Draws the mesh as text: ranks in rows and columns, as wide as `style` says, with nodes
/// as frames. If there are many rows, only the first and the last ones are drawn.
std::string mesh_text(const MeshPicture& picture, const TextStyle& style);

/// Draws the mesh as a part of a larger picture. Up to 96 devices are drawn with places
/// and labels, up to 2,048 only with their ranks, and more as dots.
SvgPart mesh_part(const MeshPicture& picture);
/// Draws the mesh as a standalone SVG.
std::string mesh_svg(const MeshPicture& picture);

}  // namespace lockstep
