#include "lessons/runner/keys.hpp"

#include <unistd.h>

#include "lessons/runner/raw_mode.hpp"
#include "lessons/runner/terminal.hpp"
#include "src/text/wrap.hpp"

namespace lockstep::lessons {

namespace {

constexpr int kEndOfInput = -1;
constexpr int kControlD = 4;

std::optional<Key> meaning(int byte, bool back) {
    switch (byte) {
        case '\n':
        case '\r':
            return Key::next;
        case 'b':
        case 'B':
            return back ? std::optional(Key::back) : std::nullopt;
        case 'q':
        case 'Q':
        case kControlD:
        case kEndOfInput:
            return Key::quit;
        default:
            return std::nullopt;
    }
}

}  // namespace

Key wait_for_key(std::string_view prompt, bool back) {
    RawMode raw;
    const std::string gone = "\r" + pad_right("", columns_of(prompt)) + "\r";
    print(prompt);
    while (true) {
        const std::optional<int> byte = raw.read();
        if (!byte) {
            print(gone);
            raw.let_signal_act();
            print(prompt);
        } else if (const std::optional<Key> key = meaning(*byte, back)) {
            print(gone);
            return *key;
        }
    }
}

std::optional<std::string> ask_line(const std::string& prompt) {
    print(prompt);
    std::string line;
    char c = 0;
    while (::read(STDIN_FILENO, &c, 1) == 1) {
        if (c == '\n') return line;
        line += c;
    }
    print("\n");
    return std::nullopt;
}

}  // namespace lockstep::lessons
