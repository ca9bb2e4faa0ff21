"""What is found about memory: one record, one table of rules, and a file for each format of forges and CI systems."""
