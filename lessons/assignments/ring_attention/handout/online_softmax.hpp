#pragma once

#include <vector>

#include "adapters.hpp"

// Softmax over keys that come in blocks, and the values' mean weighted by it, on the
// host: plain C++, no device (Milakov & Gimelshein 2018, 1805.02867, section 3).
//
// Scores are finite, up to 1000 either way, or -infinity: a key that the query does not
// see. A query may see nothing of a block, and nothing at all.

/// a5.1. Takes in a block of n keys, any number of them: scores (rows, n) and values (n,
/// width), row-major.
void absorb(OnlineSoftmax& state, const std::vector<double>& scores,
            const std::vector<double>& values);

/// a5.1. `other` has seen other keys, for the same queries. Afterwards `state` is as if
/// it had absorbed those as well. Either may have seen nothing.
void merge(OnlineSoftmax& state, const OnlineSoftmax& other);

/// a5.1. (rows, width): of each query, the mean of the values it has seen, weighted by
/// the softmax of the scores; 0 where it saw nothing.
std::vector<double> finish(const OnlineSoftmax& state);
