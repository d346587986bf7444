#pragma once

#include <vector>

#include "adapters.hpp"

// Softmax over keys that arrive in blocks, and the mean of values weighted by it: plain
// C++ on the host, no device (Milakov & Gimelshein 2018, 1805.02867, section 3).
//
// Scores are numbers from -1000 to 1000, or -infinity for a key that the query does not
// see. A query may see no key of a block, or no key at all.

/// a5.1. Absorbs a block of n keys, for any n: scores (rows, n) and values (n, width),
/// row-major.
void absorb(OnlineSoftmax& state, const std::vector<double>& scores,
            const std::vector<double>& values);

/// a5.1. `other` has seen other keys, for the same queries. Afterwards `state` is as if
/// it had absorbed those keys, too. Either state may have seen nothing.
void merge(OnlineSoftmax& state, const OnlineSoftmax& other);

/// a5.1. Returns for each query the mean of the values it has seen, weighted by the
/// softmax of the scores, (rows, width). The mean is 0 if the query saw nothing.
std::vector<double> finish(const OnlineSoftmax& state);
