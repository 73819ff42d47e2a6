package text

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// size matches podman's sizes: a number of bytes, or a number with b, k, m, g or t for powers of 1024. Quantity
// accepts the form of a Pod (256Mi) unchanged.
var size = regexp.MustCompile(`^([0-9]+)([bkmgt]?)b?$`)

// Quantity converts a typed size in bytes to a quantity of the Kubernetes API.
func Quantity(typed string) (string, error) {
	if strings.HasSuffix(typed, "i") {
		return typed, nil
	}
	m := size.FindStringSubmatch(strings.ToLower(typed))
	if m == nil {
		return "", fmt.Errorf("%.64q: must be a number with k, m or g, such as 512m", typed)
	}
	unit := map[string]string{"k": "Ki", "m": "Mi", "g": "Gi", "t": "Ti"}[m[2]]
	return m[1] + unit, nil
}

// leastMemory is the smallest memory limit in bytes, as in docker. No container can start with less.
const leastMemory = 6 << 20

// Memory is Quantity for a memory limit. It refuses a limit that is too small.
func Memory(typed string) (string, error) {
	quantity, err := Quantity(typed)
	if err != nil {
		return "", err
	}
	n, unit := strings.TrimRight(quantity, "KMGTi"), strings.TrimLeft(quantity, "0123456789")
	shift, known := map[string]int{"": 0, "Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40}[unit]
	bytes, unread := strconv.ParseUint(n, 10, 64)
	if little := known && unread == nil && bytes < leastMemory>>shift; !little { // the engine checks the others
		return quantity, nil
	}
	if unit == "" {
		return "", fmt.Errorf("%.64q is a number of bytes, but a container needs at least 6m: write %[1]sm for mebibytes", typed)
	}
	return "", fmt.Errorf("%.64q is too little: a container needs at least 6m", typed)
}
