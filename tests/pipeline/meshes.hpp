#pragma once

#include <array>
#include <vector>

namespace lockstep::test {

/// Returns all meshes with 2 to 16 devices and the sizes 1, 2 or 4 along pp, dp, cp, tp.
inline std::vector<std::array<int, 4>> all_meshes() {
    std::vector<std::array<int, 4>> meshes;
    for (const int pp : {1, 2, 4})
        for (const int dp : {1, 2, 4})
            for (const int cp : {1, 2, 4})
                for (const int tp : {1, 2, 4}) {
                    const int devices = pp * dp * cp * tp;
                    if (devices >= 2 && devices <= 16) meshes.push_back({pp, dp, cp, tp});
                }
    return meshes;
}

}  // namespace lockstep::test
