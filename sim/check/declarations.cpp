#include "sim/check/declarations.hpp"

#include <algorithm>

#include "sim/check/origin.hpp"

namespace lockstep::sim {

void Declarations::add(const Team& team, int member, const Tensor& tensor,
                       const std::string& name, SourceLine at) {
    const ByteRange range = ByteRange::of(tensor);
    if (team.size() < 2 || range.empty()) return;
    RankDeclarations& mine = of(team.ranks[member]);
    std::vector<Declaration>& here = mine.by_storage[tensor.storage()];
    const bool known = std::any_of(here.begin(), here.end(), [&](const auto& past) {
        return past.team == &team && past.range == range;
    });
    if (known) return;
    std::uint64_t number = mixed(0x6465636c, mine.counts[{team.id, name}]++);
    for (const char letter : name)
        number = mixed(number, static_cast<unsigned char>(letter));
    here.push_back({&team, member, number, name, at, range, {}});
}

void Declarations::freed(int rank, const Storage& storage) noexcept {
    of(rank).by_storage.erase(&storage);
}

std::vector<Declarations::Part> Declarations::updated_by(int rank,
                                                         const DeviceOperation& update) {
    std::vector<Part> parts;
    const Tensor& parameter = parameter_of(update);
    const auto found = of(rank).by_storage.find(parameter.storage());
    if (found == of(rank).by_storage.end()) return parts;
    const ByteRange range = ByteRange::of(parameter);
    for (Declaration& declaration : found->second) {
        if (!declaration.range.overlaps(range)) continue;
        const std::int64_t first = std::max(range.begin, declaration.range.begin);
        const std::int64_t last = std::min(range.end, declaration.range.end);
        const ByteRange part{first - declaration.range.begin,
                             last - declaration.range.begin};
        const std::uint64_t step = ++declaration.updates[part];
        std::uint64_t number = mixed(declaration.number, step);
        number = mixed(number, static_cast<std::uint64_t>(part.begin));
        number = mixed(number, static_cast<std::uint64_t>(part.end));
        const auto stepped = [&](const Tensor& tensor) {
            if (part.end - part.begin == range.end - range.begin) return tensor;
            const std::int64_t each = bytes_of(parameter.dtype());
            return tensor.slice((first - range.begin) / each, (last - first) / each);
        };
        parts.push_back({&declaration, step, number, stepped(parameter),
                         stepped(gradient_of(update))});
    }
    return parts;
}

}  // namespace lockstep::sim
