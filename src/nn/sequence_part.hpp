#pragma once

#include <functional>
#include <memory>

#include "src/nn/attention.hpp"
#include "src/nn/token_deal.hpp"

namespace lockstep {

/// Which tokens of its sequences a device has, and the attention that sees
/// the others'. By itself: all of them, and CoreAttention.
struct SequencePart {
    TokenDeal tokens{};
    MakeAttention attention{};
};

}  // namespace lockstep
