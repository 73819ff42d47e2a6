package run

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// seconds is a flag with a time in whole seconds: 90 and 1m30s are the same. Fractions are rounded up.
type seconds int64

// String implements pflag.Value.
func (s *seconds) String() string { return strconv.FormatInt(int64(*s), 10) }

// Type implements pflag.Value.
func (s *seconds) Type() string { return "seconds" }

// Set implements pflag.Value.
func (s *seconds) Set(text string) error {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		d, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("must be a number of seconds, or a duration such as 5m")
		}
		n = int64(math.Ceil(d.Seconds()))
	}
	if n < 0 || n > math.MaxInt32 {
		return fmt.Errorf("must be from 0 to %d seconds", math.MaxInt32)
	}
	*s = seconds(n)
	return nil
}
