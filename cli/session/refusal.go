package session

import (
	"errors"
	"strings"

	"github.com/bulkhead-project/bulkhead/cli/internal/text"
	"github.com/bulkhead-project/bulkhead/shim/stream"
)

// refusal returns why a pod did not open a stream, without the prefixes of the layers.
func refusal(err error) error {
	if !errors.Is(err, stream.ErrRefused) {
		return err
	}
	_, why, _ := strings.Cut(err.Error(), stream.ErrRefused.Error()+": ")
	for _, op := range []string{"agent forward: ", "agent pack: ", "agent unpack: "} {
		if _, after, found := strings.Cut(why, op); found {
			why = after
		}
	}
	return errors.New(text.Printable(strings.TrimSuffix(why, ": invalid")))
}
