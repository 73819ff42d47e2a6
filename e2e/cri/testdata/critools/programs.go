// Package critools names the programs of cri-tools that tests run, crictl and critest. It is a module of its own, so
// that Bulkhead does not depend on theirs.
package critools

import (
	_ "sigs.k8s.io/cri-tools/pkg/benchmark" // critest's, whose command consists of tests
	_ "sigs.k8s.io/cri-tools/pkg/validate"  // likewise
)
