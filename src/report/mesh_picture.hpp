#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/chart/svg.hpp"
#include "src/chart/text.hpp"
#include "src/comm/mesh_shape.hpp"

namespace lockstep {

/// A mesh of devices, as it is drawn: each is a box with its rank and its places along
/// the axes; frames around them are nodes. It is data, as a chart is.
struct MeshPicture {
    std::string title;
    MeshShape shape;
    int per_node = 8;      ///< devices of a node, which are neighbours
    std::string coloured;  ///< a colour a place along this axis; empty: one for all
    /// Short lines on each device's box, by rank: what it holds, say. Empty if there are
    /// none. They are left out where there are too many boxes.
    std::vector<std::vector<std::string>> labels{};
    int marked = -1;  ///< this rank stands out; -1: none does
    /// Says a word of the picture in its reader's language; null for English.
    std::string (*translate)(std::string_view english) = nullptr;

    /// A mesh that is coloured along its slowest axis of more than one rank.
    static MeshPicture of(MeshShape shape, int per_node);

    std::string said(std::string_view english) const {
        return translate ? translate(english) : std::string(english);
    }
    int node_of(int rank) const { return rank < 0 ? -1 : rank / per_node; }
    int nodes() const { return (shape.ranks() + per_node - 1) / per_node; }
    /// "16 devices, 2 nodes of 8".
    std::string note() const;
    /// "pp 0 dp 1 tp 0": the rank's places along axes of more than one rank.
    std::string places(int rank) const;
    /// The lines on the rank's box, in their reader's language.
    std::vector<std::string> labels_of(int rank) const;
    /// The rank's place along the axis that is coloured; 0 if none is.
    int colour_place(int rank) const;
};

/// The axis along which a mesh is coloured if nobody says: the slowest one of more than
/// one rank; empty if there is none.
std::string slowest_axis(const MeshShape& shape);

/// Draws the mesh as text: ranks in rows and columns, as wide as `style` says, with nodes
/// as frames; of many rows the first and the last.
std::string mesh_text(const MeshPicture& picture, const TextStyle& style);

/// Draws it as a part of a larger picture: up to 96 devices with places and labels, up to
/// 2,048 with their ranks, and more as dots.
SvgPart mesh_part(const MeshPicture& picture);
/// Draws it as a standalone SVG.
std::string mesh_svg(const MeshPicture& picture);

}  // namespace lockstep
