#include "lessons/page/sha256.hpp"

#include <array>
#include <cstdint>
#include <sha2.h>

namespace lockstep::lessons {

std::string sha256(const std::string& text) {
    std::array<char, SHA256_DIGEST_STRING_LENGTH> digits{};
    SHA256Data(reinterpret_cast<const std::uint8_t*>(text.data()), text.size(),
               digits.data());
    return digits.data();
}

}  // namespace lockstep::lessons
