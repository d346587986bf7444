#include "gpu/launcher/node_list.hpp"

#include <charconv>
#include <vector>

#include <fmt/format.h>

#include "src/core/require.hpp"

namespace lockstep::gpu {

namespace {

std::vector<std::string> split(const std::string& text, char separator) {
    std::vector<std::string> parts(1);
    for (const char letter : text) {
        if (letter == separator)
            parts.emplace_back();
        else
            parts.back() += letter;
    }
    return parts;
}

/// A positive whole number, or 0.
int parse_count(const std::string& text) {
    int count = 0;
    const auto [stop, error] =
        std::from_chars(text.data(), text.data() + text.size(), count);
    const bool whole = error == std::errc() && stop == text.data() + text.size();
    return whole && count > 0 ? count : 0;
}

}  // namespace

std::string first_host(const std::string& list, const std::string& variable) {
    // Outside brackets a comma ends the first host; of each bracket its first entry
    // counts, and of a range its beginning.
    std::string host;
    bool in_bracket = false;
    bool entry_done = false;
    for (const char letter : list) {
        if (!in_bracket && letter == ',') break;
        if (letter == '[' && !in_bracket)
            in_bracket = true, entry_done = false;
        else if (letter == ']' && in_bracket)
            in_bracket = false;
        else if (in_bracket && (letter == ',' || letter == '-'))
            entry_done = true;
        else if (!in_bracket || !entry_done)
            host += letter;
    }
    const bool odd = host.find_first_of("[] ") != std::string::npos;
    require(!host.empty() && !in_bracket && !odd,
            "{} is \"{}\"; expected names of machines, as in gpu[01-04,07],login1",
            variable, list);
    return host;
}

int tasks_of_node(const std::string& list, int node, const std::string& variable) {
    const auto expect = [&](bool condition, const std::string& expected) {
        require(condition, "{} is \"{}\"; expected {}", variable, list, expected);
    };
    int nodes = 0;
    for (const std::string& part : split(list, ',')) {
        const size_t bracket = part.find("(x");
        const bool repeated = bracket != std::string::npos && part.back() == ')';
        const int tasks = parse_count(part.substr(0, bracket));
        const int times =
            repeated ? parse_count(part.substr(bracket + 2, part.size() - bracket - 3))
                     : int(bracket == std::string::npos);
        expect(tasks > 0 && times > 0, "counts of tasks, as in 4(x2),3");
        nodes += times;
        if (node < nodes) return tasks;
    }
    expect(false,
           fmt::format("more than {} machines, since SLURM_NODEID is {}", node, node));
    return 0;
}

}  // namespace lockstep::gpu
