// Command nnp prints its user ID like the image nonewprivs of Kubernetes' tests.
package main

import (
	"fmt"
	"os"
)

func main() { fmt.Printf("Effective uid: %d\n", os.Geteuid()) }
