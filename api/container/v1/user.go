package containerv1

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// ParseID parses a user or group from an image or a client. Decimal digits are always a number, even if the image's
// /etc/passwd has an entry with that name. A number with a sign or spaces is refused, because other programs accept
// it as a number. The error matches ErrInvalid. number is false for a name.
func ParseID(text string) (id uint32, number bool, err error) {
	digits := strings.TrimLeft(strings.TrimSpace(text), "+-")
	if digits == "" || strings.Trim(digits, "0123456789") != "" {
		return 0, false, nil
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	// The kernel uses 2^32-1 for "no change".
	if digits != text || err != nil || n == math.MaxUint32 {
		const most = math.MaxUint32 - 1
		return 0, false, fmt.Errorf("%w: user or group %.64q (write a name, or a number from 0 to %d)", ErrInvalid, text, most)
	}
	return uint32(n), true, nil
}
