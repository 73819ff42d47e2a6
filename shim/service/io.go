package service

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/bulkhead-project/bulkhead/sandbox"
	"github.com/bulkhead-project/bulkhead/shim/layout"
)

// stdio is a process's as its creator named it, and as State tells it again: in
// the words of package layout. A path, which is containerd's fifo, is not served
// yet.
type stdio struct {
	bundle, stdin, stdout, stderr string
}

func (s stdio) input() (wanted, onlyOnce bool, err error) {
	switch s.stdin {
	case "":
		return false, false, nil
	case layout.StdioStream:
		return true, false, nil
	case layout.StreamOnce:
		return true, true, nil
	}
	return false, false, unserved("stdin", s.stdin)
}

// output says where the output goes, with the log's sent name. Stderr may be
// named too, but only as stdout is: they part ways by their channel.
func (s stdio) output() (sandbox.Output, string, error) {
	if s.stderr != "" && s.stderr != s.stdout {
		return "", "", unserved("stderr", s.stderr)
	}
	switch name, isLog := strings.CutPrefix(s.stdout, layout.LogPrefix); {
	case s.stdout == "":
		return sandbox.OutputDiscard, "", nil
	case s.stdout == layout.StdioStream:
		return sandbox.OutputStream, "", nil
	case isLog && name != "":
		return sandbox.OutputLog, name, nil
	}
	return "", "", unserved("stdout", s.stdout)
}

func unserved(which, value string) error {
	return fmt.Errorf("%s %q: %w", which, value, errors.ErrUnsupported)
}

// takeFiles are what a container takes from the store, nil for an empty name; on
// an error none is open.
func (s *Services) takeFiles(names ...string) ([]*os.File, error) {
	files := make([]*os.File, len(names))
	for i, name := range names {
		if name == "" {
			continue
		}
		var err error
		if files[i], err = s.o.Files.Take(name); err != nil {
			for _, f := range files {
				if f != nil {
					f.Close()
				}
			}
			return nil, err
		}
	}
	return files, nil
}
