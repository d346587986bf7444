#include "src/comm/stretches.hpp"

#include <algorithm>
#include <tuple>

#include "src/comm/aliasing.hpp"

namespace lockstep {

namespace {

Stretch stretch_of(const Tensor& tensor, bool written) {
    return {tensor.storage(), tensor.offset_bytes(),
            tensor.offset_bytes() + tensor.bytes(), written};
}

}  // namespace

void Stretches::add(const CommOperation& operation, int rank) {
    const auto [read, written] = buffers_of(operation, rank);
    if (written != nullptr) add(stretch_of(*written, true));
    if (read == nullptr) return;
    Stretch rest = stretch_of(*read, false);
    if (written == nullptr || !read->overlaps(*written)) return add(rest);
    // In place: what it reads beside what it writes.
    const Stretch own = stretch_of(*written, true);
    add({rest.storage, rest.begin, own.begin, false});
    rest.begin = own.end;
    add(rest);
}

bool Stretches::conflict() {
    std::sort(all_.begin(), all_.end(), [](const Stretch& a, const Stretch& b) {
        return std::tie(a.storage, a.begin) < std::tie(b.storage, b.begin);
    });
    const Storage* storage = nullptr;
    std::int64_t written_to = 0;
    std::int64_t used_to = 0;
    for (const Stretch& next : all_) {
        if (next.storage != storage) written_to = used_to = 0;
        storage = next.storage;
        if (next.begin < (next.written ? used_to : written_to)) return true;
        used_to = std::max(used_to, next.end);
        if (next.written) written_to = std::max(written_to, next.end);
    }
    return false;
}

void Stretches::add(const Stretch& next) {
    if (next.begin >= next.end) return;
    std::size_t& last = last_[next.written ? 1 : 0];
    if (last < all_.size() && all_[last].storage == next.storage) {
        Stretch& before = all_[last];
        if (before.end == next.begin) {
            before.end = next.end;
            return;
        }
        if (before.begin == next.end) {
            before.begin = next.begin;
            return;
        }
    }
    last = all_.size();
    all_.push_back(next);
}

}  // namespace lockstep
