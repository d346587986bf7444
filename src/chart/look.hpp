#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

/// The meaning of a box, a layer of memory or an edge in a picture. One colour has one
/// meaning in all pictures. The table is in look.cpp.
enum class Meaning : std::uint8_t {
    forward,
    backward,
    backward_input,
    backward_weight,
    update,
    other_phase,
    operation,
    communication,  ///< also the memory that it needs
    copy,           ///< between host and device
    parameters,
    gradients,
    optimizer,
    activations,
    between_halves,  ///< what a pipeline keeps between the halves of a backward
    workspace,
    cache,
    circle,   ///< ranks that wait for each other in a circle
    waiting,  ///< ranks that wait
    resting,  ///< ranks that wait for no other rank
};

/// The look of one kind of box, and what a legend calls it.
struct Look {
    Meaning meaning = Meaning::operation;
    char letter = 0;  ///< stands for a box where room is scarce; 0 for memory
    char fill = 0;    ///< fills the rest of its box in text
    std::string words;
    double lightness = 0;  ///< 0 is the colour of the meaning, 1 is white

    bool operator==(const Look&) const = default;
};

struct Colour {
    int red = 0;
    int green = 0;
    int blue = 0;

    std::string hex() const;  ///< "#56B4E9"
    int terminal() const;     ///< the nearest of the 256 colours of terminals
    bool is_dark() const;     ///< text on it is white
    Colour lighter(double part) const;
};

Colour colour_of(Meaning meaning);
Colour colour_of(const Look& look);

/// Returns the colour of number `place`, from 0, of a series such as the places along a
/// mesh's axis. Neighbours differ; after 24 the colours repeat.
Colour colour_of_place(int place);
inline constexpr int kPlaceColours = 24;

/// Returns the text with this background colour, for terminals of 256 colours.
std::string on_colour(const std::string& text, const Colour& colour);

}  // namespace lockstep
