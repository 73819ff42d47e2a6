// Package ulimit parses limits of processes in the form of podman and docker: nofile=1024:2048.
package ulimit

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

const prefix = "RLIMIT_"

// names are the names of getrlimit(2), in lower case.
var names = []string{
	"as", "core", "cpu", "data", "fsize", "locks", "memlock", "msgqueue", "nice", "nofile", "nproc", "rss", "rtprio", "rttime",
	"sigpending", "stack",
}

// Parse parses NAME=SOFT[:HARD]. A value is a number, or -1 or unlimited. Without HARD both are the same.
func Parse(text string) (l specs.POSIXRlimit, err error) {
	name, values, _ := strings.Cut(text, "=")
	name = strings.TrimPrefix(strings.ToUpper(name), prefix)
	if !slices.Contains(names, strings.ToLower(name)) {
		return l, fmt.Errorf("%.64q: must be NAME=SOFT[:HARD], with NAME one of %s", text, strings.Join(names, ", "))
	}
	l.Type = prefix + name
	soft, hard, both := strings.Cut(values, ":")
	if !both {
		hard = soft
	}
	if l.Soft, err = value(soft); err == nil {
		l.Hard, err = value(hard)
	}
	switch {
	case err != nil:
		return l, fmt.Errorf("%.64q: %w", text, err)
	case l.Soft > l.Hard:
		return l, fmt.Errorf("%.64q: the soft limit is above the hard one", text)
	}
	return l, nil
}

func value(text string) (uint64, error) {
	if text == "-1" || text == "unlimited" {
		return math.MaxUint64, nil // the kernel's RLIM_INFINITY
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("a limit must be a number, or -1 for none")
	}
	return n, nil
}

// ParseAll parses several limits, separated by spaces. Each name may occur once.
func ParseAll(text string) (all []specs.POSIXRlimit, err error) {
	for one := range strings.FieldsSeq(text) {
		l, err := Parse(one)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(all, func(other specs.POSIXRlimit) bool { return other.Type == l.Type }) {
			return nil, fmt.Errorf("%s is given twice", l.Type)
		}
		all = append(all, l)
	}
	return all, nil
}
