#include "src/chart/look.hpp"

#include <array>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>

namespace lockstep {

namespace {

/// The colours, in the order of the enum. Boxes have the colours of Okabe and Ito, "Color
/// universal design", 2008; memory has muted colours of Tol, "Colour schemes", 2021.
/// Colour-blind readers can tell the colours of each set apart.
constexpr std::array<Colour, 19> kColours{{
    {0x56, 0xB4, 0xE9},  // forward: sky blue
    {0xE6, 0x9F, 0x00},  // backward: orange
    {0xD5, 0x5E, 0x00},  // backward's half for inputs: vermilion
    {0x00, 0x9E, 0x73},  // backward's half for weights: green
    {0xF0, 0xE4, 0x42},  // update: yellow
    {0xBB, 0xCC, 0x33},  // another phase: pear
    {0xBB, 0xBB, 0xBB},  // operation outside a phase: grey
    {0xCC, 0x79, 0xA7},  // communication: purple
    {0x00, 0x72, 0xB2},  // copy: blue
    {0x33, 0x22, 0x88},  // parameters: indigo
    {0x88, 0x22, 0x55},  // gradients: wine
    {0x99, 0x99, 0x33},  // optimizer: olive
    {0xA8, 0x9A, 0xD8},  // activations: lavender
    {0x6A, 0x51, 0xA3},  // between halves of backward: violet
    {0xDD, 0xCC, 0x77},  // workspace: sand
    {0x44, 0xAA, 0x99},  // cache: teal
    {0xC1, 0x12, 0x1F},  // circle of waiting: red
    {0x44, 0x44, 0x44},  // waiting: dark grey
    {0x8A, 0x8A, 0x8A},  // waiting for no other rank: middle grey
}};

/// Tol's light colours, "Colour schemes", 2021, in his order, for cells with text on
/// them.
constexpr std::array<Colour, 8> kPlaces{{
    {0x77, 0xAA, 0xDD},  // light blue
    {0xEE, 0x88, 0x66},  // orange
    {0xEE, 0xDD, 0x88},  // light yellow
    {0xFF, 0xAA, 0xBB},  // pink
    {0x99, 0xDD, 0xFF},  // light cyan
    {0x44, 0xBB, 0x99},  // mint
    {0xBB, 0xCC, 0x33},  // pear
    {0xAA, 0xAA, 0x00},  // olive
}};

/// Returns the step, 0 to 5, of the terminals' colour cube that is nearest to a byte.
int cube_step(int value) {
    constexpr std::array<int, 6> kSteps{0, 95, 135, 175, 215, 255};
    int nearest = 0;
    for (int step = 1; step < 6; ++step)
        if (std::abs(kSteps[step] - value) < std::abs(kSteps[nearest] - value))
            nearest = step;
    return nearest;
}

}  // namespace

std::string Colour::hex() const {
    return fmt::format("#{:02X}{:02X}{:02X}", red, green, blue);
}

int Colour::terminal() const {
    return 16 + 36 * cube_step(red) + 6 * cube_step(green) + cube_step(blue);
}

/// By the luma of ITU-R BT.601.
bool Colour::is_dark() const {
    return 0.299 * red + 0.587 * green + 0.114 * blue < 90;
}

Colour Colour::lighter(double part) const {
    const auto mixed = [&](int value) {
        return static_cast<int>(std::lround(value + (255 - value) * part));
    };
    return {mixed(red), mixed(green), mixed(blue)};
}

Colour colour_of(Meaning meaning) {
    return kColours[static_cast<int>(meaning)];
}

Colour colour_of(const Look& look) {
    return colour_of(look.meaning).lighter(look.lightness);
}

Colour colour_of_place(int place) {
    constexpr double kLighter = 0.33;  // for each repetition
    const int round = place % kPlaceColours / static_cast<int>(kPlaces.size());
    return kPlaces[static_cast<std::size_t>(place) % kPlaces.size()].lighter(kLighter *
                                                                             round);
}

std::string on_colour(const std::string& text, const Colour& colour) {
    return fmt::format("\x1b[38;5;{};48;5;{}m{}\x1b[0m", colour.is_dark() ? 231 : 16,
                       colour.terminal(), text);
}

}  // namespace lockstep
