-- kind: expand
-- breaking: no

-- What was stored is compared with its checksum whenever it is read (core/checksum.py). Rows of
-- earlier versions have none. Servers of the version before go on beside this one: they write
-- none, and leave that of the progress behind, so it says for which version of the row it is.
ALTER TABLE tasks ADD COLUMN input_checksum INTEGER;
ALTER TABLE tasks ADD COLUMN progress_checksum INTEGER;
ALTER TABLE history ADD COLUMN input_checksum INTEGER;
ALTER TABLE history ADD COLUMN progress_checksum INTEGER;
ALTER TABLE history ADD COLUMN output_checksum INTEGER;
ALTER TABLE attempts ADD COLUMN error_checksum INTEGER;
