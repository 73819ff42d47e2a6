package containerv1

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// ParseID reads a user or group that an image or a client names. Decimal digits are always a
// number: an entry of the image's /etc/passwd with such a name does not count. A number with a
// sign or spaces is refused, since other programs read it as a number.
// The error matches ErrInvalid. Number is false for a name.
func ParseID(text string) (id uint32, number bool, err error) {
	digits := strings.TrimLeft(strings.TrimSpace(text), "+-")
	if digits == "" || strings.Trim(digits, "0123456789") != "" {
		return 0, false, nil
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	// By 2^32-1 the kernel means "no change".
	if digits != text || err != nil || n == math.MaxUint32 {
		const most = math.MaxUint32 - 1
		return 0, false, fmt.Errorf("%w: user or group %.64q (write a name, or a number from 0 to %d)", ErrInvalid, text, most)
	}
	return uint32(n), true, nil
}
