package limits

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
)

// hugeSizes maps the cgroups' names of huge page sizes to the kernel's directories. Larger sizes cannot be allocated
// from memory that was added after the boot.
var hugeSizes = map[string]struct {
	dir   string
	bytes uint64
}{"2MB": {"/sys/kernel/mm/hugepages/hugepages-2048kB", 2 << 20}}

// HugePages allocates a container's huge pages, and returns a function that releases them.
func (l *Limits) HugePages(limits map[string]uint64) (release func() error, err error) {
	taken := map[string]uint64{}
	release = func() error {
		var errs []error
		for size, pages := range taken {
			errs = append(errs, l.addPages(size, -int64(pages)))
			delete(taken, size)
		}
		return errors.Join(errs...)
	}
	for size, limit := range limits {
		kind, known := hugeSizes[size]
		if limit == 0 {
			continue
		}
		if !known {
			return nil, errors.Join(fmt.Errorf("huge pages of %.16s: %w", size, errdefs.ErrNotImplemented), release())
		}
		pages := limit / kind.bytes
		if err := l.addPages(size, int64(pages)); err != nil {
			return nil, errors.Join(err, release())
		}
		taken[size] = pages
	}
	return release, nil
}

// addPages changes the VM's number of huge pages. If it cannot add them all, the number stays the same.
func (l *Limits) addPages(size string, n int64) error {
	file := hugeSizes[size].dir + "/nr_hugepages"
	l.hugePages.Lock()
	defer l.hugePages.Unlock()
	have, err := readCount(file)
	if err != nil {
		return fmt.Errorf("huge pages of %s: %w", size, err)
	}
	want := max(have+n, 0)
	if err := os.WriteFile(file, strconv.AppendInt(nil, want, 10), 0); err != nil {
		return fmt.Errorf("huge pages of %s: %w", size, err)
	}
	got, err := readCount(file)
	if err == nil && n > 0 && got < want {
		err = fmt.Errorf("the VM has memory for %d of %d", got-have, n)
		err = errors.Join(err, os.WriteFile(file, strconv.AppendInt(nil, have, 10), 0))
	}
	if err != nil {
		return fmt.Errorf("huge pages of %s: %w", size, err)
	}
	return nil
}

func readCount(file string) (int64, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
}
