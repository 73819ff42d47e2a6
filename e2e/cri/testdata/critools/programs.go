// Package critools names the programs of cri-tools that tests run, crictl and critest. It is a
// module of its own, so that none of this is a dependency of Bulkhead's.
package critools

import (
	_ "sigs.k8s.io/cri-tools/pkg/benchmark" // critest's, whose command consists of tests
	_ "sigs.k8s.io/cri-tools/pkg/validate"  // likewise
)
